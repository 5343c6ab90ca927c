# Installs the build in BUILD into a prefix of its own, then configures, builds and runs the project CONSUMER against it.
# PYTHON is the python whose PyTorch the build has; "" for a build without.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
set(configure ${CMAKE_COMMAND} -S ${CONSUMER} -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH=${WORK}/prefix
              -D CMAKE_CXX_FLAGS_RELEASE=-O0
              -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
set(environment ${CMAKE_COMMAND} -E env --unset=DEAR_PYTHON)
if(PYTHON)
  # Without a PyTorch the package says what is missing, in a sentence.
  run(${PYTHON} -m venv --without-pip ${WORK}/bare)
  execute_process(COMMAND ${configure} -B ${WORK}/refused -D DEAR_PYTHON=${WORK}/bare/bin/python
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE error)
  string(REGEX REPLACE "[ \n]+" " " error "${error}")
  if(status EQUAL 0 OR NOT error MATCHES "PyTorch was not found: [^ ]*/bare/bin/python has no PyTorch; run `pip install torch==")
    message(FATAL_ERROR "a python without PyTorch was not refused as it should be: ${status} ${error}")
  endif()
  # The active virtual environment of a user, which has the PyTorch of PYTHON.
  run(${PYTHON} -m venv --without-pip ${WORK}/users)
  execute_process(COMMAND ${PYTHON} -c "import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec('torch').origin).parents[1], end='')"
                  OUTPUT_VARIABLE packages COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB site ${WORK}/users/lib/python3*/site-packages)
  file(WRITE ${site}/users.pth "${packages}\n")
  list(APPEND environment VIRTUAL_ENV=${WORK}/users)
endif()
run(${environment} ${configure} -B ${WORK}/build)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/plan)
run(${WORK}/prefix/bin/dear launch -n 2 ${WORK}/build/all_reduce)
if(EXISTS ${WORK}/build/train)
  run(${WORK}/build/train)
  run(${WORK}/build/documented WORKING_DIRECTORY ${WORK})
  run(${WORK}/prefix/bin/dear train --workers 2 --steps 3 --layers 1)  # by its module, installed
endif()
file(READ ${WORK}/prefix/share/dear/published.json published)
file(APPEND ${WORK}/prefix/share/dear/published.json "no JSON")
execute_process(COMMAND ${WORK}/prefix/bin/dear study calibration WORKING_DIRECTORY ${WORK} RESULT_VARIABLE status ERROR_VARIABLE error)
if(NOT status EQUAL 2 OR NOT error MATCHES "prefix/share/dear/published.json")
  message(FATAL_ERROR "the installed command did not read the figures that are installed with it: ${status} ${error}")
endif()
file(WRITE ${WORK}/prefix/share/dear/published.json "${published}")
foreach(file IN ITEMS man/man1/dear.1 bash-completion/completions/dear zsh/site-functions/_dear)
  if(NOT EXISTS ${WORK}/prefix/share/${file})
    message(FATAL_ERROR "share/${file} is not installed")
  endif()
endforeach()
run(${WORK}/prefix/bin/dear --version)
