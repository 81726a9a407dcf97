//! The C interface of PBXT; see include/pbxt.h.
