//! What others publish in pages: the counters are known when a recording begins.

use super::{Need, Source};

/// The counters of a guest.
pub const GUEST: Source = Source {
    name: "guest",
    about: "what a guest publishes in the page of --guest",
    needs: &[Need::Ebpf],
    events: Vec::new,
};

/// The counters of applications.
pub const APP: Source = Source {
    name: "app",
    about: "what programs publish in pages of their own",
    needs: &[Need::Ebpf],
    events: Vec::new,
};
