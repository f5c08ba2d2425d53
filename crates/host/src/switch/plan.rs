//! Finds out what a switch would do, without touching anything.

use crate::switch::error::SwitchError;
use crate::switch::guest::{self, Guest};
use crate::switch::module::Module;
use crate::switch::{SwitchOptions, Target};
use vtax_sys::kvm::PagingMode;
use vtax_sys::process::is_kvm;
use vtax_sys::tree::Tree;

#[derive(Debug)]
pub struct SwitchPlan {
    /// The current mode.
    pub from: PagingMode,
    pub to: PagingMode,
    pub module: Module,
    /// The guests; empty when the host is in that mode already.
    pub guests: Vec<Guest>,
}

impl SwitchPlan {
    /// What the guests will lose, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.guests.iter().flat_map(|guest| &guest.warnings);
        all.cloned().collect()
    }
}

/// Examine the host and its guests, without changing anything.
///
/// Fails with `Refused`, which says what is missing, when this is not root, when the module cannot
/// be loaded again or does not say its mode, when a guest cannot be switched, and when KVM has a
/// user that is not a guest.
pub fn plan(options: &SwitchOptions) -> Result<SwitchPlan, SwitchError> {
    let tree = Tree::host();
    if !nix::unistd::geteuid().is_root() {
        return Err(SwitchError::refused(
            "user",
            "only root can load modules",
            "run this as root",
        ));
    }
    let module = Module::find(&tree, options.module_path.as_deref())?;
    let Some(from) = module.mode(&tree) else {
        return Err(SwitchError::refused(
            module.name,
            "it does not report its mode",
            "load it again by hand",
        ));
    };
    let to = match options.to {
        Target::Mode(mode) => mode,
        Target::Other => from.other(),
    };
    let mut guests = Vec::new();
    if from != to {
        for pid in guest::users(&tree) {
            guests.push(guest::look(&tree, pid, from, options.patience)?);
        }
        explained(&tree, &module, &guests)?;
    }
    Ok(SwitchPlan {
        from,
        to,
        module,
        guests,
    })
}

/// Check that the kernel counts no more users than the guests account for.
fn explained(tree: &Tree, module: &Module, guests: &[Guest]) -> Result<(), SwitchError> {
    let open = guests
        .iter()
        .flat_map(|guest| tree.descriptors(guest.plan.pid));
    let known = open.filter(|one| is_kvm(&one.target)).count() as u64;
    match module.users(tree) {
        Some(users) if users > known => Err(SwitchError::refused(
            &module.name,
            format!("it has {users} users, and only {known} are guests that vtax finds"),
            "end what else uses KVM (another container, another kernel module)",
        )),
        _ => Ok(()),
    }
}
