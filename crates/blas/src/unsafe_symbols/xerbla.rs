//! Wrong arguments go to the process's own XERBLA, which a program may have replaced.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;

use crate::arguments::Position;
use crate::layout::{Layout, exchange};
use crate::settings::say;

/// `xerbla.f`: the routine's name, the position, the name's length (hidden, at the end).
type Xerbla = unsafe extern "C" fn(*const c_char, *const c_int, usize);
/// `cblas_xerbla`: the position, the routine's name, a format and its values.
type CblasXerbla = unsafe extern "C" fn(c_int, *const c_char, *const c_char, ...);

/// Report a wrong argument of a Fortran routine, such as `DGEMM `: six letters.
///
/// The name ends with a zero, because some XERBLAs in C ignore its length.
pub fn fortran(routine: &CStr, position: Position) {
    let Some(found) = find(c"xerbla_") else {
        let name = routine.to_string_lossy();
        let name = name.trim_end();
        say(&format!(
            "On entry to {name} parameter number {position} had an illegal value"
        ));
        return;
    };
    // SAFETY: this is the signature of every BLAS's xerbla_.
    let xerbla: Xerbla = unsafe { transmute(found) };
    // SAFETY: the name has the given number of letters, and the position is live.
    unsafe { xerbla(routine.as_ptr(), &raw const position, routine.count_bytes()) };
}

/// Report a wrong argument of a C routine by its position there.
///
/// Netlib's `cblas_xerbla`, and programs that replace it, exchange positions themselves when the
/// flag `RowMajorStrg` says that the matrices are stored by rows: they get the positions
/// unexchanged.
pub fn c(routine: &str, position: Position, layout: Layout, exchanged: &[[Position; 2]]) {
    let (Some(found), Ok(name)) = (find(c"cblas_xerbla"), CString::new(routine)) else {
        say(&format!(
            "Parameter {position} to routine {routine} was incorrect"
        ));
        return;
    };
    // SAFETY: this is the signature that cblas.h declares.
    let xerbla: CblasXerbla = unsafe { transmute(found) };
    let flag = find(c"RowMajorStrg").filter(|_| layout == Layout::Rows);
    let position = flag.map_or(position, |_| exchange(position, exchanged));
    let set = |value: c_int| {
        if let Some(flag) = flag {
            // SAFETY: in netlib's CBLAS this is an int that each function sets in this way while it
            // runs.
            unsafe { flag.cast::<c_int>().write(value) };
        }
    };
    set(1);
    // SAFETY: both texts are live, and the format takes no values.
    unsafe { xerbla(position, name.as_ptr(), c"".as_ptr()) };
    set(0);
}

/// The address of a symbol of this process.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the call only looks the name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
