//! MPI as a shared object: everything that needs `unsafe`.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use libloading::Library;

/// `MPI_Init`; without arguments since MPI-2.
type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
/// `MPI_Wtime` and `MPI_Wtick`: seconds.
type Seconds = unsafe extern "C" fn() -> f64;

/// An initialised MPI of one process.
#[derive(Debug)]
pub struct Mpi {
    wtime: Seconds,
    wtick: Seconds,
    finalize: Finalize,
    _library: Library,
}

impl Mpi {
    /// Load a library as the system's loader resolves `name`, and call `MPI_Init`.
    ///
    /// Fails when the loader cannot load the library, or when it lacks a function; `Ok(None)`:
    /// `MPI_Init` refused.
    pub fn start(name: &str) -> Result<Option<Self>, libloading::Error> {
        // SAFETY: loading runs the library's initialisers, those of the system's MPI.
        let library = unsafe { Library::new(name) }?;
        // SAFETY: every MPI has these functions with these signatures (MPI 4.0, annex A).
        let (init, wtime, wtick, finalize) = unsafe {
            (
                *library.get::<Init>(b"MPI_Init\0")?,
                *library.get::<Seconds>(b"MPI_Wtime\0")?,
                *library.get::<Seconds>(b"MPI_Wtick\0")?,
                *library.get::<Finalize>(b"MPI_Finalize\0")?,
            )
        };
        // SAFETY: MPI-2 and later take null pointers for "no arguments".
        let code = unsafe { init(null_mut(), null_mut()) };
        Ok((code == 0).then_some(Self {
            wtime,
            wtick,
            finalize,
            _library: library,
        }))
    }

    /// `MPI_Wtime` at this moment, in seconds.
    pub fn wtime(&self) -> f64 {
        // SAFETY: MPI is initialised, and the library is loaded as long as `self`.
        unsafe { (self.wtime)() }
    }

    /// The resolution that MPI claims, in seconds.
    pub fn wtick(&self) -> f64 {
        // SAFETY: as for `wtime`.
        unsafe { (self.wtick)() }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // SAFETY: MPI is initialised, and is not used afterwards.
        unsafe { (self.finalize)() };
    }
}
