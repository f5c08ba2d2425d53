//! Where a Linux kernel without address randomization maps the guest's memory (kernel doc
//! `x86/x86_64/mm`).

/// Base-2 logarithm of the bytes of a frame.
pub const FRAME_SHIFT: u32 = 12;
/// The first address of the direct map of all memory, with four-level tables.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// The direct map's length: 64 TiB.
const DIRECT_MAP_BYTES: u64 = 1 << 46;
/// The first address of the kernel's image, which maps memory from address 0 on.
const IMAGE: u64 = 0xffff_ffff_8000_0000;
/// The image's length: modules follow.
const IMAGE_BYTES: u64 = 1 << 30;

/// Is an instruction at `address` the kernel's?
pub const fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

/// The address at which the kernel reads a frame.
pub const fn direct_address(frame: u64) -> u64 {
    DIRECT_MAP + (frame << FRAME_SHIFT)
}

/// The guest physical address of a kernel address, if it is in one of the two maps of all memory.
#[inline]
pub const fn physical(address: u64) -> Option<u64> {
    let direct = address.wrapping_sub(DIRECT_MAP);
    if direct < DIRECT_MAP_BYTES {
        return Some(direct);
    }
    let image = address.wrapping_sub(IMAGE);
    if image < IMAGE_BYTES {
        return Some(image);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_maps_lead_to_the_same_frame() {
        assert_eq!(physical(direct_address(0x1234) + 8), Some(0x123_4008));
        assert_eq!(physical(0xffff_ffff_8123_4008), Some(0x123_4008));
        for other in [
            0,
            0x7fff_ffff_f000,
            0xffff_c900_0000_0000,
            0xffff_ffff_c000_0000,
        ] {
            assert_eq!(physical(other), None, "{other:#x}");
        }
    }
}
