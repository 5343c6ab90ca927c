# `cmake --install`: the command, the headers, and the package that find_package(dear) finds, with a target dear::FOLDER
# for every folder and dear::dear for all of them.
include(CMakePackageConfigHelpers)

get_property(dear_libraries GLOBAL PROPERTY DEAR_LIBRARIES)
add_library(dear_dear INTERFACE)
add_library(dear::dear ALIAS dear_dear)
target_link_libraries(dear_dear INTERFACE ${dear_libraries})
set_target_properties(dear_dear PROPERTIES EXPORT_NAME dear)

set(dear_package ${CMAKE_INSTALL_LIBDIR}/cmake/dear)
install(TARGETS ${dear_libraries} dear_dear EXPORT dearTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT dearTargets NAMESPACE dear:: DESTINATION ${dear_package})
install(TARGETS dear_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(NOT DEAR_SANITIZE)
  set(dear_share ${PROJECT_BINARY_DIR}/share)
  install(FILES ${dear_share}/dear.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${dear_share}/dear.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME dear)
  install(FILES ${dear_share}/dear.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _dear)
endif()

file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/public_headers.txt public_headers REGEX "^[^#]")
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  if(DEAR_TORCH OR NOT folder MATCHES "^train/|process_group")
    install(FILES ${PROJECT_SOURCE_DIR}/dear/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dear/${folder})
  endif()
endforeach()

if(DEAR_STUDIES)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/study/published.json DESTINATION ${CMAKE_INSTALL_DATADIR}/dear)
  foreach(study IN ITEMS themis kfac lancet fusionllm diloco partel)
    install(FILES ${PROJECT_SOURCE_DIR}/docs/study/${study}/published.json DESTINATION ${CMAKE_INSTALL_DATADIR}/dear
            RENAME published_${study}.json)
  endforeach()
  install(FILES ${PROJECT_SOURCE_DIR}/docs/study/fusionllm/digits.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/dear
          RENAME fusionllm_digits.txt)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/dearConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/dearConfig.cmake INSTALL_DESTINATION ${dear_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dearConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dearConfig.cmake ${PROJECT_BINARY_DIR}/dearConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/dearTorch.cmake ${PROJECT_SOURCE_DIR}/cmake/find_torch.py
        DESTINATION ${dear_package})
