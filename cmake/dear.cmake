# One folder is one target: dear_library(NAME ...) makes `dear_NAME`, with the alias dear::NAME.
#   SOURCES   files of the folder
#   USES      folders of storeys below, or before it in its own (cmake/storeys.txt), linked publicly
#   INTERNAL  not part of the installed package
#   BRIEF     what it does takes no time that a user would notice: hardly optimised, to compile in three quarters of the time
#   PURE      arithmetic on values, without threads, tricks with memory or foreign bytes: AddressSanitizer does not instrument
#             it. ThreadSanitizer does: threads of others meet in its static tables.
#   LIBRARIES further targets, linked publicly;  PRIVATE_LIBRARIES likewise, not passed on
#   OWN_HEADER  it is not compiled with the header of most folders
function(dear_library name)
  cmake_parse_arguments(ARG "INTERNAL;BRIEF;PURE;OWN_HEADER" "" "SOURCES;USES;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  add_library(dear_${name} STATIC ${ARG_SOURCES})
  add_library(dear::${name} ALIAS dear_${name})
  set_target_properties(dear_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  if(DEAR_SANITIZE)
    set_target_properties(dear_${name} PROPERTIES EXCLUDE_FROM_ALL ON)  # what no test needs is not built
  endif()
  target_include_directories(dear_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(dear_${name} PUBLIC cxx_std_20)
  if(ARG_BRIEF)
    dear_hardly_optimise(dear_${name})
  endif()
  target_link_libraries(dear_${name} PRIVATE $<BUILD_INTERFACE:dear_warnings>)
  if(ARG_PURE AND DEAR_SANITIZE AND NOT DEAR_FUZZ)
    target_compile_options(dear_${name} PRIVATE -O1)
    if(NOT DEAR_SANITIZE MATCHES thread)
      target_compile_options(dear_${name} PRIVATE -fno-sanitize=all)
    endif()
  elseif(DEAR_TOGETHER AND NOT ARG_OWN_HEADER)
    if(ARG_BRIEF AND DEAR_HEADER_OF_EACH_LEVEL AND NOT DEAR_SANITIZE)
      dear_header(dear_${name} dear_header_brief -O1)
    else()
      dear_header(dear_${name} dear_header "")
    endif()
  endif()
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

# gcc 13 and later on x86 take no precompiled header of another level of optimisation: what is hardly optimised has its own.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  set(DEAR_HEADER_OF_EACH_LEVEL ON)
endif()

# What most folders include, compiled once. Where sources are compiled by themselves, each includes what it needs.
function(dear_header name header options)
  if(NOT TARGET ${header})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/header.cpp CONTENT "")
    add_library(${header} OBJECT ${CMAKE_BINARY_DIR}/header.cpp)
    set_target_properties(${header} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_features(${header} PUBLIC cxx_std_20)
    target_compile_options(${header} PRIVATE ${options})
    target_link_libraries(${header} PRIVATE dear_warnings fmt::fmt nlohmann_json::nlohmann_json)
    target_precompile_headers(${header} PRIVATE <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp> <algorithm> <atomic> <chrono>
      <condition_variable> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span> <string>
      <thread> <unordered_map> <variant> <vector>)
  endif()
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:fmt::fmt> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
  target_precompile_headers(${name} REUSE_FROM ${header})
endfunction()

# dear_module(NAME ...): a library that is loaded at run time (dear/base/os/module.h), libdear_NAME.so. It holds the folders
# it uses, and shows nothing of them. INTERNAL ones are not installed. What is installed is a part of the package for
# Python too, there in the folder lib/dear of the package, unless it is OF_COMMAND.
set(DEAR_MODULE_DIRECTORY ${CMAKE_BINARY_DIR}/modules)
function(dear_module name)
  cmake_parse_arguments(ARG "INTERNAL;OF_COMMAND" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_library(dear_${name} MODULE ${ARG_SOURCES})
  set_target_properties(dear_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${DEAR_MODULE_DIRECTORY})
  target_link_libraries(dear_${name} PRIVATE dear_warnings ${ARG_LIBRARIES})
  target_link_options(dear_${name} PRIVATE -Wl,--exclude-libs,ALL)
  foreach(folder IN LISTS ARG_USES)
    target_link_libraries(dear_${name} PRIVATE dear_${folder})
  endforeach()
  if(NOT ARG_INTERNAL)
    install(TARGETS dear_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/dear)
    if(NOT ARG_OF_COMMAND)
      install(TARGETS dear_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/dear COMPONENT python EXCLUDE_FROM_ALL)
    endif()
    set_target_properties(dear_${name} PROPERTIES INSTALL_RPATH "$ORIGIN/..")  # of the package: its copy of fmt
  endif()
endfunction()

# dear_program(NAME SOURCES ... USES ... LIBRARIES ...): a program on these folders.
#   HEADER  the library whose precompiled header it is compiled with
function(dear_program name)
  cmake_parse_arguments(ARG "" "HEADER" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE dear_warnings ${ARG_LIBRARIES})
  foreach(folder IN LISTS ARG_USES)
    target_link_libraries(${name} PRIVATE dear_${folder})
  endforeach()
  if(ARG_HEADER)
    if(NOT DEAR_HEADER_OF_EACH_LEVEL)
      dear_hardly_optimise(${name})
    endif()
    dear_reuse_header(${name} ${ARG_HEADER})
  endif()
endfunction()

# dear_hardly_optimise(TARGET): -O1, but nothing under a sanitizer: instrumented code takes long to optimise, and gcc takes no
# precompiled header that was compiled with optimisation into a source without it, or the other way round.
function(dear_hardly_optimise name)
  if(NOT DEAR_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
  endif()
endfunction()

# dear_steers(TARGET): what takes time in it is done by other libraries. -O2 compiles a third faster than -O3.
function(dear_steers name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O2>)
endfunction()

function(dear_reuse_header name library)
  target_compile_options(${name} PRIVATE -fPIC)  # as the header was
  if(DEAR_HEADER_OF_EACH_LEVEL AND NOT DEAR_SANITIZE)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O2>)  # the level of dear_optim, whose header it is
  endif()
  target_precompile_headers(${name} REUSE_FROM ${library})
endfunction()

# What nearly every test includes, compiled once; to read it took most tests longer than to compile what they say. Tests
# themselves are not optimised: half the time to compile assertions, what is tested is as fast as ever.
function(dear_test_header name)
  if(NOT TARGET dear_test_header)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_header.cpp CONTENT "")
    add_library(dear_test_header OBJECT ${CMAKE_BINARY_DIR}/test_header.cpp)
    dear_compile_as_test(dear_test_header)
    target_precompile_headers(dear_test_header PRIVATE <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h> <algorithm> <chrono>
                              <functional> <map> <memory> <random> <set> <string> <thread> <vector>)
  endif()
  dear_compile_as_test(${name})
  target_precompile_headers(${name} REUSE_FROM dear_test_header)
endfunction()
function(dear_compile_as_test name)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE dear_warnings GTest::gmock fmt::fmt)
  target_compile_options(${name} PRIVATE -O0)
endfunction()

# dear_test(NAME SOURCES ... USES ...): a GoogleTest program `NAME`, every case of it known to ctest. Under a sanitizer, where
# a program takes long to start, one process runs all cases.
#   SEQUENTIAL  one thread runs all that it tests, so that ThreadSanitizer has nothing to say of it
#   PURE        it tests arithmetic on values: no threads, no tricks with memory, no foreign bytes; no sanitizer runs it
#   TOGETHER    its cases share what takes long to make: one process runs them all
#   SHARDS      so many processes run its cases, since each takes long to start, with libtorch
#   HEADER      the library whose precompiled header it is compiled with
#   REPEATS     a pattern of cases that take the code of others once more, with other values: `scripts/test all` runs them.
#               For `*`, one process runs them all.
#   PLAIN       a pattern of cases that a sanitizer has nothing to say of: only builds without one run them
function(dear_test name)
  cmake_parse_arguments(ARG "SEQUENTIAL;PURE;TOGETHER" "TIMEOUT;HEADER;SHARDS;REPEATS;PLAIN" "SOURCES;USES;LIBRARIES" ${ARGN})
  if(NOT DEAR_TESTS OR (ARG_SEQUENTIAL AND DEAR_SANITIZE MATCHES thread) OR (ARG_PURE AND DEAR_SANITIZE))
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE dear_warnings GTest::gmock GTest::gtest_main ${ARG_LIBRARIES})
  foreach(folder IN LISTS ARG_USES)
    target_link_libraries(${name} PRIVATE dear_${folder})
  endforeach()
  if(ARG_HEADER)
    if(NOT DEAR_HEADER_OF_EACH_LEVEL)
      dear_hardly_optimise(${name})
    endif()
    dear_reuse_header(${name} ${ARG_HEADER})
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 8)  # one core would have all of them
  else()
    dear_test_header(${name})
  endif()
  set(left_out ${ARG_REPEATS})
  if(DEAR_SANITIZE)
    list(APPEND left_out ${ARG_PLAIN})
  endif()
  list(JOIN left_out ":" left_out)
  if(NOT ARG_SHARDS AND NOT ARG_TOGETHER AND NOT DEAR_SANITIZE)
    gtest_discover_tests(${name} TEST_FILTER "-${left_out}" DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT ${ARG_TIMEOUT})
    if(ARG_REPEATS)
      gtest_discover_tests(${name} TEST_FILTER "${ARG_REPEATS}" TEST_LIST ${name}_REPEATS DISCOVERY_TIMEOUT 120
                           PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS repeats)
    endif()
    return()
  endif()
  if(ARG_SHARDS OR DEAR_SANITIZE)
    set(ARG_TIMEOUT 900)  # of many cases
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  if(NOT ARG_REPEATS STREQUAL "*")
    dear_processes_of_test(${name} "${name}" ${ARG_SHARDS} ${ARG_TIMEOUT} "-${left_out}" "")
  endif()
  if(ARG_REPEATS)
    dear_processes_of_test(${name} "${name}.repeats" ${ARG_SHARDS} ${ARG_TIMEOUT} "${ARG_REPEATS}" repeats)
  endif()
endfunction()

# Adds tests NAME or NAME.0, NAME.1, ...: so many processes (`shards`) of a test program share the cases of a pattern. ctest
# starts them before others, since they take longer.
function(dear_processes_of_test program name shards timeout pattern label)
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    if(shards GREATER 1)
      set(test ${name}.${shard})
    endif()
    add_test(NAME ${test} COMMAND ${program} --gtest_brief=1 --gtest_filter=${pattern})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout} COST 150 LABELS "${label}"
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# dear_mpi_test(NAME RANKS 1 2 ... SOURCES ... USES ...): a GoogleTest program with a main() that takes the name of an MPI,
# run on so many ranks under every MPI that was found, and under a sanitizer on 2 ranks under the first of them. 2 ranks of each MPI,
# odd numbers under the first and even ones under the last are in the gate, the rest are repeats. ctest knows it as NAME_MPI_RANKS.
#   OF_TWO  a pattern of cases that are for two ranks
function(dear_mpi_test name)
  get_property(implementations GLOBAL PROPERTY DEAR_MPI_IMPLEMENTATIONS)
  # Under ThreadSanitizer the hooks that UCX puts into malloc and madvise end every process in a crash.
  if(NOT DEAR_TESTS OR NOT implementations OR DEAR_SANITIZE MATCHES thread)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT;OF_TWO" "RANKS;SOURCES;USES;LIBRARIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  dear_program(${name} SOURCES ${ARG_SOURCES} USES ${ARG_USES} LIBRARIES GTest::gmock GTest::gtest ${ARG_LIBRARIES})
  list(GET implementations 0 first)
  list(GET implementations -1 last)
  if(DEAR_SANITIZE)
    set(implementations ${first})
    set(ARG_RANKS 2)
  endif()
  foreach(implementation IN LISTS implementations)
    add_dependencies(${name} dear_mpi_${implementation})
    foreach(ranks IN LISTS ARG_RANKS)
      set(test ${name}_${implementation}_${ranks})
      set(left_out)
      if(NOT ranks EQUAL 2)
        set(left_out ${ARG_OF_TWO})
      endif()
      add_test(NAME ${test} COMMAND ${PROJECT_SOURCE_DIR}/scripts/mpirun ${implementation} ${ranks}
                                    $<TARGET_FILE:${name}> ${implementation} --gtest_brief=1 --gtest_filter=-${left_out})
      # What an MPI keeps until the end lies in plugins that are gone by then, so no suppression could name it.
      set_tests_properties(${test} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks}
                           ENVIRONMENT_MODIFICATION ASAN_OPTIONS=path_list_append:detect_leaks=0)
      math(EXPR odd "${ranks} % 2")
      if(NOT ranks EQUAL 2 AND NOT (odd AND implementation STREQUAL first) AND NOT (NOT odd AND implementation STREQUAL last))
        set_tests_properties(${test} PROPERTIES LABELS repeats)
      endif()
    endforeach()
  endforeach()
endfunction()
