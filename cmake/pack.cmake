# `pip install . -C cmake.define.DEAR_BUILT=build/release`: a wheel of what this build has, instead of a build of its own.
# Sets DEAR_PACKED where that is asked for.
set(DEAR_BUILT "" CACHE STRING "A build folder whose package for Python to take, relative to the sources")
set(DEAR_PACKED OFF)
if(DEAR_BUILT)
  set(DEAR_PACKED ON)
  cmake_path(ABSOLUTE_PATH DEAR_BUILT BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE built)
  if(NOT EXISTS ${built}/python/dear/_C.${SKBUILD_SOABI}.so)
    message(FATAL_ERROR "${built} has no package for this python: build it there, or leave DEAR_BUILT out")
  endif()
  file(STRINGS ${built}/python/dear/_version.py release REGEX "^torch_release")
  string(REGEX MATCH "[0-9.]+" release "${release}")
  include(${PROJECT_SOURCE_DIR}/cmake/dearTorch.cmake)
  dear_find_torch(missing RELEASE ${release})
  if(missing)
    message(FATAL_ERROR "${missing}")
  endif()
  install(CODE "execute_process(COMMAND ${CMAKE_COMMAND} --install ${built} --component python
                                        --prefix \${CMAKE_INSTALL_PREFIX} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
  unset(DEAR_BUILT CACHE)  # the next `pip install .`, in the same folder, builds
endif()
