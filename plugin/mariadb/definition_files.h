/*
 * definition_files.h: the server's definition files of tables that the engine has.
 */
#ifndef PBXT_PLUGIN_DEFINITION_FILES_H
#define PBXT_PLUGIN_DEFINITION_FILES_H

#include <vector>

#include "plugin.h"

namespace pbxt {

/* Between the name of a partitioned table and that of a part of it. */
constexpr const char* kPartition = "#P#";

/* The whole file of a table, named by its path without extension. False if there is none that can be read. */
bool read_definition_file(const char* path, std::vector<uint8_t>* bytes) noexcept;

/* Tells of tables without one; with pbxt_restore_definitions their files are written. After the engine has
 * opened its database, before anybody uses it. */
void look_for_definition_files() noexcept;

}  // namespace pbxt

#endif
