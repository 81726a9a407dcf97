/*
 * keys.cc: keys of encrypted files, from the key management plugin of the server (docs/encryption.md).
 *
 * The server's encryption service answers without such a plugin too: that there is no key.
 */
#include "plugin.h"

#include <mysql/service_encryption.h>

namespace pbxt {
namespace {

static_assert(ENCRYPTION_KEY_VERSION_INVALID == PBXT_NO_KEY_VERSION, "no version of a key");

uint32_t latest_version(uint32_t key_id) {
  unsigned int version = encryption_key_get_latest_version(key_id);
  // A key that says not to encrypt is none to encrypt with.
  return version == ENCRYPTION_KEY_NOT_ENCRYPTED ? PBXT_NO_KEY_VERSION : version;
}

int key(uint32_t key_id, uint32_t version, uint8_t* bytes, uint32_t* len) {
  return encryption_key_get(key_id, version, bytes, len) == 0 ? 0 : 1;
}

}  // namespace

const pbxt_keys* keys() {
  static const pbxt_keys table = {
      latest_version, key,
      "load the key management plugin that has it (plugin_load_add) and start the server again"};
  return &table;
}

bool asks_for_encryption(const ha_table_option_struct* options) {
  return options && options->encrypted == 1;
}

/* Rule EN15. */
const char* refuse_encryption(const ha_table_option_struct* options) {
  Settings settings = settings_at_start();
  if (settings.encrypts_all && options && options->encrypted == 2)
    return "PBXT encrypts all tables while pbxt_encrypt is ON: ENCRYPTED=NO contradicts it";
  if (asks_for_encryption(options) && latest_version(settings.encryption_key) == PBXT_NO_KEY_VERSION)
    return "PBXT has no key to encrypt the table with: load a key management plugin that has the key of "
           "pbxt_encryption_key_id (plugin_load_add)";
  return nullptr;
}

}  // namespace pbxt
