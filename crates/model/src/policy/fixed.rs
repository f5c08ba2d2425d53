//! The static modes, which current VMMs use, and against which every other policy is compared.

use serde::{Deserialize, Serialize};

use super::measure::check_window;
use super::{Policy, PolicyView, Reading};
use crate::error::ModelError;
use vtax_sys::kvm::PagingMode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedParameters {
    /// Retired instructions of an output window; it affects no decision.
    pub window: u64,
}

/// One mode for the whole run.
#[derive(Clone, Debug)]
pub struct Fixed {
    mode: PagingMode,
    window: u64,
}

impl Fixed {
    /// Stays in `mode`. Fails when the window is empty.
    pub fn new(mode: PagingMode, parameters: FixedParameters) -> Result<Self, ModelError> {
        check_window("window", parameters.window)?;
        Ok(Self {
            mode,
            window: parameters.window,
        })
    }
}

impl Policy for Fixed {
    fn name(&self) -> &str {
        self.mode.name()
    }

    fn window_instructions(&self) -> u64 {
        self.window
    }

    fn wanted(&self) -> PagingMode {
        self.mode
    }

    fn on_window(&mut self, _now: &Reading) -> Result<PagingMode, ModelError> {
        Ok(self.mode)
    }

    fn view(&self) -> PolicyView {
        PolicyView::of_mode(self.mode)
    }
}
