//! The C ABI of lockstep_text.h over the crates `tokenizers` and `minijinja`. Panics stop in `abi::guard`.
mod abi;
mod json;
mod python;
mod spellings;
mod template;
mod token_bytes;
mod tokenizer;

use abi::{guard, Bytes, Code, Failure, Ids, Owned, View};
use template::{StrftimeNow, Template};
use tokenizer::Tokenizer;

/// # Safety
/// Comes from this library and is freed once; so for the next.
#[no_mangle]
pub unsafe extern "C" fn lockstep_text_bytes_free(bytes: Bytes) {
    bytes.free();
}

/// # Safety
/// See `lockstep_text_bytes_free`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_text_ids_free(ids: Ids) {
    ids.free();
}

#[repr(C)]
pub struct Table {
    offsets: *const u32,
    bytes: *const u8,
    flags: *const u8,
    tokens: usize,
    strips_leading_space: i32,
}

/// # Safety
/// Views as in the header; `out` and `error` are valid for writing. So for all below; objects come from their `new` and are not freed.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_new(
    tokenizer_json: View,
    config_json: View,
    out: *mut *mut Tokenizer,
    error: *mut Bytes,
) -> i32 {
    guard(error, || {
        let tokenizer = Tokenizer::new(tokenizer_json.bytes(), config_json.bytes())?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_table(tokenizer: &Tokenizer) -> Table {
    let table = &tokenizer.table;
    Table {
        offsets: table.offsets.as_ptr(),
        bytes: table.bytes.as_ptr(),
        flags: table.special.as_ptr(),
        tokens: table.special.len(),
        strips_leading_space: table.strips_leading_space as i32,
    }
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_id_of(tokenizer: &Tokenizer, token: View) -> i64 {
    token.text("token").ok().and_then(|token| tokenizer.id_of(token)).map_or(-1, i64::from)
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_named(tokenizer: &Tokenizer, key: View) -> View {
    key.text("key").ok().and_then(|key| tokenizer.named.get(key)).map_or(View::NONE, |token| View::of(token))
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_encode(
    tokenizer: &Tokenizer,
    text: View,
    add_special_tokens: i32,
    out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    guard(error, || {
        out.write(Owned::new(tokenizer.encode(text.text("the text")?, add_special_tokens != 0)?));
        Ok(())
    })
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_encode_chat(tokenizer: &Tokenizer, text: View, out: *mut Ids, error: *mut Bytes) -> i32 {
    guard(error, || {
        out.write(Owned::new(tokenizer.encode_chat(text.text("the text")?)?));
        Ok(())
    })
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_mark_plain(
    tokenizer: &Tokenizer,
    text: View,
    keep_think: i32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    guard(error, || {
        out.write(Owned::new(tokenizer.mark_plain(text.text("the text")?, keep_think != 0)?.into_bytes()));
        Ok(())
    })
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_template_source(json: View, out: *mut Bytes, error: *mut Bytes) -> i32 {
    guard(error, || {
        out.write(Owned::new(template::source_of(json.bytes())?.into_bytes()));
        Ok(())
    })
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_template_new(
    tokenizer: &Tokenizer,
    name: View,
    source: View,
    now: StrftimeNow,
    out: *mut *mut Template,
    error: *mut Bytes,
) -> i32 {
    guard(error, || {
        let name = name.text("the name")?;
        let source = source.text(name).map_err(|e| Failure::new(Code::Corrupt, e.message))?;
        let template = Template::new(name, source, tokenizer.named.iter(), now)?;
        out.write(Box::into_raw(Box::new(template)));
        Ok(())
    })
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// # Safety
/// See `lockstep_tokenizer_new`.
#[no_mangle]
pub unsafe extern "C" fn lockstep_template_render(template: &Template, variables_json: View, out: *mut Bytes, error: *mut Bytes) -> i32 {
    guard(error, || {
        let variables = variables_json.text("the template's variables")?;
        out.write(Owned::new(template.render(variables)?));
        Ok(())
    })
}
