/*
 * xa.h: transaction names of the server (XID) as the bytes the engine keeps with a prepared transaction.
 */
#ifndef PBXT_PLUGIN_XA_H
#define PBXT_PLUGIN_XA_H

#include "plugin.h"

namespace pbxt {

constexpr size_t kXidBytesMax = 8 + 2 + XIDDATASIZE;

/* Format id (8 bytes, little-endian), lengths of the two parts (1 byte each), their bytes. Returns the
 * length. */
size_t xid_to_bytes(const XID& xid, uint8_t* bytes);

/* False if the bytes are not of that form. */
bool xid_from_bytes(const uint8_t* bytes, size_t length, XID* xid);

}  // namespace pbxt

#endif
