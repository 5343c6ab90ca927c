# Finds PyTorch by a python that has it, and makes the target dear::libtorch of it. Nothing of CUDA is needed, also for a
# CUDA build of PyTorch: DeAR links what is common to all builds. DeAR's own build and find_package(dear) use it.
#
# dear_find_torch(REASON [RELEASE 2.13] [FOLDER PATH]) sets in the caller's scope
#   REASON              "" when dear::libtorch is there; else one sentence that says what is missing and how to get it
#   dear_torch_PYTHON, dear_torch_LIBRARIES (their folder), dear_torch_VERSION (2.13.0+cpu), dear_torch_RELEASE (2.13)
# RELEASE demands that release of PyTorch, by default any that DeAR can be built with.
#
# The python is the CMake variable or the environment variable DEAR_PYTHON. Where neither is set, it is the first of these
# that has such a PyTorch: the active virtual environment, python3, FOLDER/.venv.
set(_dear_find_torch "${CMAKE_CURRENT_LIST_DIR}/find_torch.py")

function(_dear_torch_pythons result folder)
  foreach(given "${DEAR_PYTHON}" "$ENV{DEAR_PYTHON}")
    if(given)
      set(${result} "${given}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(pythons)
  find_program(_dear_python3 python3 NO_CACHE)
  foreach(python "$ENV{VIRTUAL_ENV}/bin/python" "${_dear_python3}" "${folder}/.venv/bin/python")
    if(EXISTS "${python}")
      list(APPEND pythons "${python}")
    endif()
  endforeach()
  set(${result} "${pythons}" PARENT_SCOPE)
endfunction()

function(dear_find_torch reason)
  cmake_parse_arguments(ARG "" "RELEASE;FOLDER" "" ${ARGN})
  _dear_torch_pythons(pythons "${ARG_FOLDER}")
  set(said)
  foreach(python IN LISTS pythons)
    execute_process(COMMAND "${python}" "${_dear_find_torch}" ${ARG_RELEASE}
                    RESULT_VARIABLE status OUTPUT_VARIABLE found ERROR_VARIABLE error)
    if(status EQUAL 0 AND found MATCHES "^(.+)[|](([0-9]+[.][0-9]+).*)$")
      set(folder "${CMAKE_MATCH_1}")
      set(version "${CMAKE_MATCH_2}")
      set(release "${CMAKE_MATCH_3}")
      if(NOT TARGET dear::libtorch)
        add_library(dear::libtorch INTERFACE IMPORTED GLOBAL)
        set_target_properties(dear::libtorch PROPERTIES
          INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
          INTERFACE_LINK_LIBRARIES "${folder}/lib/libtorch.so;${folder}/lib/libtorch_cpu.so;${folder}/lib/libc10.so")
      endif()
      set(${reason} "" PARENT_SCOPE)
      set(dear_torch_PYTHON "${python}" PARENT_SCOPE)
      set(dear_torch_LIBRARIES "${folder}/lib" PARENT_SCOPE)
      set(dear_torch_VERSION "${version}" PARENT_SCOPE)
      set(dear_torch_RELEASE "${release}" PARENT_SCOPE)
      return()
    endif()
    if(NOT error)
      set(error "cannot be run (${status})")
    endif()
    string(STRIP "${error}" error)
    string(REGEX REPLACE ".*\n" "" error "${error}")
    list(APPEND said "${python} ${error}")
  endforeach()
  if(NOT said)
    set(said "there is no python3 here")
  endif()
  list(JOIN said ", " said)
  set(wanted "torch")
  if(ARG_RELEASE)
    set(wanted "torch==${ARG_RELEASE}.*")
  endif()
  set(${reason} "PyTorch was not found: ${said}; run `pip install ${wanted}`, or name the python that has it with \
-DDEAR_PYTHON=/path/to/python" PARENT_SCOPE)
endfunction()
