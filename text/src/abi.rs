//! Plain C values in and out, and the wall no panic crosses.
use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::sync::Once;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    pub const NONE: View = View { data: std::ptr::null(), size: 0 };

    pub fn of(text: &str) -> View {
        View { data: text.as_ptr(), size: text.len() }
    }

    /// # Safety
    /// `data` points to `size` bytes that outlive 'a, or `size` is 0.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.size)
        }
    }

    /// # Safety
    /// As for `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.bytes())
            .map_err(|e| Failure::new(Code::Invalid, format!("{what} is not valid UTF-8 at byte {}", e.valid_up_to())))
    }
}

/// Memory handed to the caller: a boxed slice taken apart.
#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    size: usize,
}
pub type Bytes = Owned<u8>;
pub type Ids = Owned<i32>;

impl<T> Owned<T> {
    pub fn new(values: Vec<T>) -> Owned<T> {
        let slice = Box::leak(values.into_boxed_slice());
        Owned { data: slice.as_mut_ptr(), size: slice.len() }
    }

    /// # Safety
    /// `self` comes from `new` and is freed once.
    pub unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.size)));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Corrupt = 1,
    Unsupported = 2,
    Invalid = 3,
    Raised = 4,
    Render = 5,
    Limit = 6,
    Absent = 7,
    Internal = 8,
}

#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

/// Runs `body`; 0, or the code of the failure with its message in `error`. A panic (a defect here or in a dependency) is a failure too,
/// and prints nothing.
///
/// # Safety
/// `error` is valid for writing.
pub unsafe fn guard(error: *mut Bytes, body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| set_hook(Box::new(|_| {})));
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Failure::new(Code::Internal, format!("internal error of the text library: {}", words.unwrap_or("no message")))
        }
    };
    error.write(Owned::new(failure.message.into_bytes()));
    failure.code as i32
}
