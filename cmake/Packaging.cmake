# SPDX-License-Identifier: Apache-2.0
# What is installed beside the program, which itself needs no file at run time; a .deb by CPack; a source tarball.

include(GNUInstallDirs)
# The documentation keeps the tree's folders, so that its links hold, and jobs/ runs from a copy of it.
install(FILES README.md LICENSE CHANGELOG.md CITATION.cff CONTRIBUTING.md TYPE DOC)
install(DIRECTORY docs jobs TYPE DOC)
install(FILES data/schema/result.schema.json DESTINATION ${CMAKE_INSTALL_DOCDIR}/data/schema)
install(PROGRAMS scripts/environment.sh scripts/launches.sh scripts/validate-results.py
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/scripts)
install(DIRECTORY results TYPE DOC FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")

# (cd BUILD && cpack -G DEB). What the program is linked with becomes a dependency by dpkg-shlibdeps.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The gradmeter authors <gradmeter@example.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)  # mpirun; ranks as threads need none
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3, slurm-client")
include(CPack)

# The tarball is exactly the last commit, and says so (Version.cmake).
find_package(Git QUIET)
if(Git_FOUND AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
  set(tarball ${PROJECT_BINARY_DIR}/gradmeter-${PROJECT_VERSION}.tar.gz)
  add_custom_target(dist COMMENT "${tarball}" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMAND ${GIT_EXECUTABLE} archive --prefix=gradmeter-${PROJECT_VERSION}/ --output=${tarball} HEAD)
endif()
