//! The BLAS as a shared object: everything that needs `unsafe`.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libloading::{Library, Symbol};
use vtax_workloads::matrix::Number;

/// A precision whose product of matrices every BLAS has.
pub trait Precision: Number {
    const ONE: Self;
    /// The routine's name in Fortran.
    const ROUTINE: &CStr;
}

impl Precision for f64 {
    const ONE: Self = 1.0;
    const ROUTINE: &CStr = c"dgemm_";
}

impl Precision for f32 {
    const ONE: Self = 1.0;
    const ROUTINE: &CStr = c"sgemm_";
}

/// GEMM of the reference BLAS (netlib.org/blas, `dgemm.f`), with 32-bit integers.
///
/// Fortran compilers pass the lengths of the two character arguments at the end.
type Gemm<T> = unsafe extern "C" fn(
    transpose_a: *const c_char,
    transpose_b: *const c_char,
    m: *const c_int,
    n: *const c_int,
    k: *const c_int,
    alpha: *const T,
    a: *const T,
    leading_a: *const c_int,
    b: *const T,
    leading_b: *const c_int,
    beta: *const T,
    c: *mut T,
    leading_c: *const c_int,
    length_a: usize,
    length_b: usize,
);

/// Longer than any version text.
const TEXT_BYTES: usize = 512;

/// A loaded BLAS that has GEMM in this precision.
#[derive(Debug)]
pub struct Blas<T> {
    library: Library,
    gemm: Gemm<T>,
}

impl<T: Precision> Blas<T> {
    /// Load a library as the system's loader resolves `name`.
    ///
    /// Fails when the loader cannot load the library, or when it has no such GEMM.
    pub fn load(name: &str) -> Result<Self, libloading::Error> {
        // SAFETY: loading runs the library's initialisers. The user names a BLAS, which is code
        // that is run on purpose.
        let library = unsafe { Library::new(name) }?;
        // SAFETY: every BLAS has GEMM with this signature. One built for 64-bit integers reads
        // 8 bytes where the arguments have 4 or more; see `multiply`, which passes 8.
        let gemm = *unsafe { library.get::<Gemm<T>>(T::ROUTINE) }?;
        Ok(Self { library, gemm })
    }

    /// The first `columns` of c = a b, for square matrices of `n` rows stored by columns.
    ///
    /// Returns false, and does nothing, when a matrix does not have n² entries, or for more columns
    /// than there are.
    pub fn multiply(&self, n: c_int, columns: c_int, a: &[T], b: &[T], c: &mut [T]) -> bool {
        let entries = usize::try_from(n).ok().and_then(|n| n.checked_mul(n));
        if n < 1
            || !(1..=n).contains(&columns)
            || [a.len(), b.len(), c.len()]
                .iter()
                .any(|length| Some(*length) != entries)
        {
            return false;
        }
        let transpose = c_char::from_ne_bytes([b'N']);
        // Passed as 64 bits: in little-endian memory both kinds of integers read the right value.
        let (n, columns) = (i64::from(n), i64::from(columns));
        let n: *const c_int = (&raw const n).cast();
        let columns: *const c_int = (&raw const columns).cast();
        let (one, zero) = (T::ONE, T::ZERO);
        // SAFETY: all pointers point to live values; the matrices have n times n entries and enough columns, which has
        // been checked, and `c` is borrowed mutably.
        unsafe {
            (self.gemm)(
                &raw const transpose,
                &raw const transpose,
                n,
                columns,
                n,
                &raw const one,
                a.as_ptr(),
                n,
                b.as_ptr(),
                n,
                &raw const zero,
                c.as_mut_ptr(),
                n,
                1,
                1,
            );
        }
        true
    }

    /// The file of the object that contains GEMM, with links resolved.
    ///
    /// The file may be another than the loaded one: `libblas.so.3` may only refer to it.
    pub fn path(&self) -> Option<PathBuf> {
        let mut info = libc::Dl_info {
            dli_fname: std::ptr::null(),
            dli_fbase: std::ptr::null_mut(),
            dli_sname: std::ptr::null(),
            dli_saddr: std::ptr::null_mut(),
        };
        // SAFETY: dladdr only looks the address up and fills the structure.
        let found = unsafe { libc::dladdr(self.gemm as *const c_void, &raw mut info) };
        if found == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: dladdr's name is a C string that lives as long as the library is loaded.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
    }

    /// The result of a function `const char *name(void)`; `None` if there is no such function.
    pub fn text(&self, name: &str) -> Option<String> {
        // SAFETY: callers pass names of functions that are documented to have this signature.
        let function: Symbol<'_, unsafe extern "C" fn() -> *const c_char> =
            unsafe { self.library.get(name) }.ok()?;
        // SAFETY: as above.
        let text = unsafe { function() };
        if text.is_null() {
            return None;
        }
        // SAFETY: the functions return static C strings.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .trim()
                .to_owned(),
        )
    }

    /// The result of a function `int name(void)`.
    pub fn number(&self, name: &str) -> Option<i64> {
        // SAFETY: callers pass names of functions that are documented to have this signature; those
        // that return 64 bits return small numbers.
        let function: Symbol<'_, unsafe extern "C" fn() -> c_int> =
            unsafe { self.library.get(name) }.ok()?;
        // SAFETY: as above.
        Some(i64::from(unsafe { function() }))
    }

    /// The result of a function `void name(char *buffer, int length)` (MKL's version).
    pub fn written_text(&self, name: &str) -> Option<String> {
        // SAFETY: callers pass names of functions that are documented to have this signature.
        let function: Symbol<'_, unsafe extern "C" fn(*mut c_char, c_int)> =
            unsafe { self.library.get(name) }.ok()?;
        let mut bytes = [0_u8; TEXT_BYTES];
        let length = c_int::try_from(TEXT_BYTES - 1).ok()?;
        // SAFETY: the buffer is larger than the length that is passed.
        unsafe { function(bytes.as_mut_ptr().cast(), length) };
        let text = CStr::from_bytes_until_nul(&bytes).ok()?;
        Some(text.to_string_lossy().trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The name of BLIS's kernels: `bli_arch_string(bli_arch_query_id())`.
    pub fn blis_kernels(&self) -> Option<String> {
        let id = c_int::try_from(self.number("bli_arch_query_id")?).ok()?;
        // SAFETY: BLIS documents this signature, from an enumeration to a static C string.
        let function: Symbol<'_, unsafe extern "C" fn(c_int) -> *const c_char> =
            unsafe { self.library.get("bli_arch_string") }.ok()?;
        // SAFETY: the number comes from BLIS itself.
        let text = unsafe { function(id) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so it is a static C string.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }
}
