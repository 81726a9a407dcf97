/*
 * decisions.h: transactions that the server's coordinator without binary log had decided to commit before a
 * crash.
 */
#ifndef PBXT_PLUGIN_DECISIONS_H
#define PBXT_PLUGIN_DECISIONS_H

namespace pbxt {

/* At the start of the plugin, with the database open: commits them here and in the engines that are ready.
 * False, with a message in the error log, if one could not be committed: the server must not go on then. */
bool carry_out_decisions() noexcept;
/* When the server begins to ask for prepared transactions: the same in engines that started after this one.
 * Does nothing from the second call on. */
void carry_out_decisions_in_later_engines() noexcept;

}  // namespace pbxt

#endif
