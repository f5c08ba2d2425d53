//! The one call that needs `unsafe`.

#![allow(unsafe_code)]

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;

pub const PAGE_BYTES: usize = 4096;

/// A page that KVM can map into a guest.
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_BYTES]);

/// Map a page into a guest at an address that is a multiple of the page's size.
///
/// The page is never freed: the guest may use it as long as the guest has an open descriptor.
pub fn show(machine: &VmFd, page: Box<Page>, address: u64) -> Result<(), kvm_ioctls::Error> {
    let page: &'static mut Page = Box::leak(page);
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: address,
        memory_size: PAGE_BYTES as u64,
        userspace_addr: std::ptr::from_mut(page).addr() as u64,
    };
    // SAFETY: the page is whole, aligned, never freed, and no other reference to it is left.
    unsafe { machine.set_user_memory_region(region) }
}
