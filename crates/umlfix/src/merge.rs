//! Completing a short FP state. This module is pure logic; the formats are from the Intel SDM,
//! volume 1, chapter 13.

/// Where the legacy region and the header end and the first component may begin.
pub const HEADER_END: usize = 576;
/// `XSTATE_BV`: bit `i` says that component `i` is not in its initial state.
const STATE_BITS: core::ops::Range<usize> = 512..520;
/// Components 0 (x87) and 1 (SSE) are in the legacy region; other components may lie anywhere after
/// it.
const FIRST_EXTENDED: usize = 2;
/// Bit 63 of `XSTATE_BV` is not a component.
pub const COMPONENTS: usize = 63;

/// Where a component lies in the standard (not compacted) format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub offset: usize,
    /// Number of bytes; 0: the CPU does not have the component.
    pub size: usize,
}

/// The extents of all components, by number.
pub type Layout = [Extent; COMPONENTS];

/// A layout without extended components.
pub const EMPTY: Layout = [Extent {
    offset: HEADER_END,
    size: 0,
}; COMPONENTS];

/// Put the short state `given` over the whole state `current`.
///
/// `layout` tells where each extended component lies. Components that `given` does not hold to
/// their last byte keep their current values and their bits of `XSTATE_BV`; all others are taken
/// from `given`. Returns false, without a change, when `given` has no header or is not shorter than
/// `current`.
pub fn complete(current: &mut [u8], given: &[u8], layout: &Layout) -> bool {
    if given.len() < HEADER_END || given.len() > current.len() {
        return false;
    }
    let (Some(present), Some(wanted)) = (state_bits(current), state_bits(given)) else {
        return false;
    };
    let mut kept = 0_u64;
    let mut copied = given.len();
    for (component, extent) in layout.iter().enumerate().skip(FIRST_EXTENDED) {
        let Extent { offset, size } = *extent;
        if size > 0 && offset.saturating_add(size) > given.len() {
            kept |= 1 << component;
            // A component that begins inside must not get only some of its bytes.
            copied = copied.min(offset.max(HEADER_END));
        }
    }
    let (Some(to), Some(from)) = (current.get_mut(..copied), given.get(..copied)) else {
        return false;
    };
    to.copy_from_slice(from);
    let bits = (wanted & !kept) | (present & kept);
    match current.get_mut(STATE_BITS) {
        Some(to) => to.copy_from_slice(&bits.to_le_bytes()),
        None => return false,
    }
    true
}

fn state_bits(area: &[u8]) -> Option<u64> {
    let bytes = area.get(STATE_BITS)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Sapphire Rapids: AVX, AVX-512, PKRU, and beyond 2696 bytes the AMX components.
    fn amx() -> Layout {
        let mut layout = EMPTY;
        for (component, offset, size) in [
            (2, 576, 256),
            (5, 1088, 64),
            (6, 1152, 512),
            (7, 1664, 1024),
            (9, 2688, 8),
            (17, 2752, 64),
            (18, 2816, 8192),
        ] {
            layout[component] = Extent { offset, size };
        }
        layout
    }

    fn area(length: usize, fill: u8, bits: u64) -> Vec<u8> {
        let mut area = vec![fill; length];
        area[STATE_BITS].copy_from_slice(&bits.to_le_bytes());
        area
    }

    #[test]
    fn what_lies_beyond_is_kept_with_its_bits() {
        let mut current = area(11008, 1, 0x6_0001);
        let given = area(2696, 2, 0x2_02e6);
        assert!(complete(&mut current, &given, &amx()));
        assert_eq!(state_bits(&current), Some(0x6_02e6));
        assert_eq!(current[..512], given[..512]);
        assert_eq!(current[520..2696], given[520..]);
        assert!(current[2696..].iter().all(|byte| *byte == 1));
    }

    #[test]
    fn a_component_that_is_cut_keeps_all_of_its_bytes() {
        let mut current = area(11008, 1, 1 << 9);
        let given = area(2690, 2, 0x7);
        assert!(complete(&mut current, &given, &amx()));
        assert_eq!(state_bits(&current), Some(0x207));
        assert_eq!(current[2687..2696], [2, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_whole_state_replaces_everything() {
        let mut current = area(2696, 1, 0x2ff);
        let given = area(2696, 2, 0x3);
        let mut small = EMPTY;
        small[..10].copy_from_slice(&amx()[..10]);
        assert!(complete(&mut current, &given, &small));
        assert_eq!(current, given);
    }

    #[test]
    fn what_is_no_state_changes_nothing() {
        let mut current = area(2696, 1, 0x3);
        let before = current.clone();
        assert!(!complete(&mut current, &[2; 575], &amx()));
        assert!(!complete(&mut current, &area(2697, 2, 0), &amx()));
        assert!(!complete(&mut [], &area(600, 2, 0), &amx()));
        assert_eq!(current, before);
    }

    #[test]
    fn components_in_impossible_places_do_no_harm() {
        let mut current = area(1000, 1, 0);
        let given = area(600, 2, 0);
        for (offset, size) in [(usize::MAX, usize::MAX), (0, 700)] {
            let layout = [Extent { offset, size }; COMPONENTS];
            assert!(complete(&mut current, &given, &layout));
        }
    }
}
