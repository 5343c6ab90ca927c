# One folder is one target: dear_library(NAME ...) makes `dear_NAME`, with the alias dear::NAME.
#   SOURCES   files of the folder
#   USES      folders on lower lines of the ladder (ARCHITECTURE.md), linked publicly
#   INTERNAL  not part of the installed package
#   LIBRARIES further targets, linked publicly;  PRIVATE_LIBRARIES likewise, not passed on
function(dear_library name)
  cmake_parse_arguments(ARG "INTERNAL" "" "SOURCES;USES;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  add_library(dear_${name} STATIC ${ARG_SOURCES})
  add_library(dear::${name} ALIAS dear_${name})
  set_target_properties(dear_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_include_directories(dear_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(dear_${name} PUBLIC cxx_std_20)
  target_link_libraries(dear_${name} PRIVATE $<BUILD_INTERFACE:dear_warnings>)
  foreach(folder IN LISTS ARG_USES)
    target_link_libraries(dear_${name} PUBLIC dear_${folder})
  endforeach()
  if(ARG_LIBRARIES)
    target_link_libraries(dear_${name} PUBLIC ${ARG_LIBRARIES})
  endif()
  if(ARG_PRIVATE_LIBRARIES)
    target_link_libraries(dear_${name} PRIVATE ${ARG_PRIVATE_LIBRARIES})
  endif()
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY DEAR_LIBRARIES dear_${name})
  endif()
endfunction()

# dear_program(NAME SOURCES ... USES ... LIBRARIES ...): a program on these folders.
function(dear_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE dear_warnings ${ARG_LIBRARIES})
  foreach(folder IN LISTS ARG_USES)
    target_link_libraries(${name} PRIVATE dear_${folder})
  endforeach()
endfunction()

# dear_test(NAME SOURCES ... USES ...): a GoogleTest program `NAME`, every case of it known to ctest.
function(dear_test name)
  if(NOT DEAR_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;USES;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:dear_warnings> GTest::gmock GTest::gtest_main ${ARG_LIBRARIES})
  foreach(folder IN LISTS ARG_USES)
    target_link_libraries(${name} PRIVATE dear_${folder})
  endforeach()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
