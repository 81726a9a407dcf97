//! PBXT: a write-once, log-structured, multi-version transactional storage engine.
