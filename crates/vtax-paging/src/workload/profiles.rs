//! Named workloads.
