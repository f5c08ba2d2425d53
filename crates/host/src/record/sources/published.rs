//! What others publish in pages: the counters are known when a recording begins.

use super::{EventSource, Need};

/// The counters of a guest.
pub const GUEST: EventSource = EventSource {
    name: "guest",
    about: "what a guest publishes in the page of --guest",
    needs: &[Need::Ebpf],
    events: Vec::new,
};

/// The counters of applications.
pub const APP: EventSource = EventSource {
    name: "app",
    about: "what programs publish in pages of their own",
    needs: &[Need::Ebpf],
    events: Vec::new,
};
