# Installs the build in BUILD into a prefix of its own, then configures, builds and runs the project CONSUMER against it.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release
    -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/plan)
run(${WORK}/prefix/bin/dear launch -n 2 ${WORK}/build/all_reduce)
if(EXISTS ${WORK}/build/train)
  run(${WORK}/build/train)
  run(${WORK}/build/documented WORKING_DIRECTORY ${WORK})
  run(${WORK}/prefix/bin/dear train --workers 2 --steps 3 --layers 1)  # by its module, installed
endif()
run(${WORK}/prefix/bin/dear --version)
