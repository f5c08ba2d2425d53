//! The settings of a simulation, read from the mapping that `vtax.paging.settings.checked` makes.

use pyo3::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::model::address::{Gpa, PageSize, TableFormat};
use vtax_model::model::host_pages::{HostPages, HostRange};
use vtax_model::model::machine::Machine;
use vtax_model::model::shadow::ShadowStyle;
use vtax_model::simulation::Setup;
use vtax_model::workload::Workload;

/// How the guest is virtualized and how the output is divided.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    guest_levels: u8,
    host_levels: Option<u8>,
    /// The guest's page size; `None`: the workload's own.
    guest_page: Option<String>,
    host_page: String,
    /// First byte, first byte after the range, and size of the host's pages there.
    host_ranges: Option<Vec<(u64, u64, String)>>,
    memory_bytes: u64,
    isolation: bool,
    shadow_style: String,
    window_instructions: u64,
    instruction_limit: Option<f64>,
    seed: u64,
    /// Follow every reference instead of samples of each phase.
    pub(crate) whole: bool,
}

impl Settings {
    /// The workload, with the guest's page size instead of its own.
    pub(crate) fn workload(&self, workload: &Workload) -> Result<Workload, ModelError> {
        let mut workload = workload.clone();
        if let Some(name) = &self.guest_page {
            workload.pages = page("pages.guest", name)?;
        }
        Ok(workload)
    }

    /// The settings in the model's own form, for a guest with pages of `guest_page` unless the
    /// settings say otherwise.
    pub(crate) fn setup(
        &self,
        machine: &Machine,
        guest_page: PageSize,
    ) -> Result<Setup, ModelError> {
        let mut machine = machine.clone();
        if let Some(levels) = self.host_levels {
            machine.host_tables = tables("tables.host", levels)?;
        }
        let guest_page = match &self.guest_page {
            Some(name) => page("pages.guest", name)?,
            None => guest_page,
        };
        let setup = Setup {
            guest_tables: tables("tables.guest", self.guest_levels)?,
            guest_page,
            host_pages: self.host_pages()?,
            memory_bytes: self.memory_bytes,
            isolation: self.isolation,
            shadow: style(&self.shadow_style)?,
            window_instructions: self.window_instructions,
            instruction_limit: self.instruction_limit,
            seed: self.seed,
            ..Setup::new(machine)
        };
        setup.check()?;
        Ok(setup)
    }

    fn host_pages(&self) -> Result<HostPages, ModelError> {
        let usual = page("pages.host", &self.host_page)?;
        let mut ranges = Vec::new();
        for (start, end, size) in self.host_ranges.iter().flatten() {
            ranges.push(HostRange {
                start: Gpa(*start),
                end: Gpa(*end),
                size: page("host_ranges", size)?,
            });
        }
        HostPages::with(usual, ranges)
    }
}

fn tables(field: &str, levels: u8) -> Result<TableFormat, ModelError> {
    [TableFormat::Two, TableFormat::Four, TableFormat::Five]
        .into_iter()
        .find(|format| format.levels() == levels)
        .ok_or_else(|| ModelError::field(field, format!("{levels} levels: must be 2, 4 or 5")))
}

fn page(field: &str, name: &str) -> Result<PageSize, ModelError> {
    match name {
        "4K" => Ok(PageSize::K4),
        "2M" => Ok(PageSize::M2),
        "1G" => Ok(PageSize::G1),
        _ => Err(ModelError::field(
            field,
            format!("'{name}' is not a page size: must be 4K, 2M or 1G"),
        )),
    }
}

fn style(name: &str) -> Result<ShadowStyle, ModelError> {
    match name {
        "kvm" => Ok(ShadowStyle::KVM),
        "palacios" => Ok(ShadowStyle::Palacios),
        _ => Err(ModelError::field(
            "shadow_style",
            format!("'{name}' is unknown: must be kvm or palacios"),
        )),
    }
}
