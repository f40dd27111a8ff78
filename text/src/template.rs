//! Chat templates in the environment transformers gives them: trim_blocks, lstrip_blocks, no trailing newline, no escaping, Python's
//! tojson and str methods, raise_exception, strftime_now, loop controls, transparent generation blocks.
use std::fmt;
use std::io;
use std::panic::{catch_unwind, panic_any, resume_unwind, AssertUnwindSafe};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use crate::abi::{Code, Failure};
use crate::{json, python};

const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Outside strings: the engine parses and compiles an expression by recursion, a frame an operator.
const MAX_TAG_CODE_BYTES: usize = 4096;
const MAX_ELIFS: usize = 1000;
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// One unit pays for an instruction or 64 bytes, so this bounds time (a fraction of a second) and memory (256 MiB) of a template alone;
const BASE_FUEL: u64 = 4 << 20;
/// and a conversation brings the work of its own size: a short message is some 60 bytes and 250 instructions.
const FUEL_PER_BYTE: u64 = 8;

pub type StrftimeNow = extern "C" fn(format: *const u8, format_size: usize, out: *mut u8, capacity: usize) -> usize;

pub struct Template {
    environment: Environment<'static>,
    name: String,
}

/// What raise_exception was given, to tell it from the engine's own errors.
#[derive(Debug)]
struct Raised(String);
impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Raised {}

impl Template {
    pub fn new<'a>(
        name: &str,
        source: &str,
        special_tokens: impl Iterator<Item = (&'a String, &'a String)>,
        now: StrftimeNow,
    ) -> Result<Template, Failure> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(Failure::new(
                Code::Unsupported,
                format!("the template has {} bytes, more than the {MAX_SOURCE_BYTES} supported", source.len()),
            ));
        }
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false).build();
        let mut environment = Environment::new();
        environment.set_syntax(syntax.map_err(|e| Failure::new(Code::Internal, e.to_string()))?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(200);
        environment.set_unknown_method_callback(python::method);
        environment.add_filter("tojson", python::tojson);
        environment.add_filter("trim", python::trim);
        environment.add_filter("int", python::int);
        environment.add_filter("float", python::float);
        environment.add_test("sequence", python::is_sequence);
        environment.add_test("number", python::is_number);
        environment.add_test("integer", python::is_integer);
        environment.add_test("float", python::is_float);
        environment.remove_global("debug");
        environment.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message.to_string())))
        });
        environment.add_function("strftime_now", move |format: &str| strftime(now, format));
        for (key, token) in special_tokens {
            environment.add_global(key.clone(), Value::from(token.as_str()));
        }
        let source = without_generation_tags(&source.replace("\r\n", "\n").replace('\r', "\n"))
            .map_err(|e| Failure { message: format!("{name}, {}", e.message), ..e })?;
        environment.add_template_owned(name.to_string(), source).map_err(|e| Failure::new(Code::Corrupt, words(&e)))?;
        Ok(Template { environment, name: name.to_string() })
    }

    pub fn render(&self, variables: &str) -> Result<Vec<u8>, Failure> {
        let invalid = |message: String| Failure::new(Code::Invalid, message);
        let context = json::parse(variables).map_err(|e| invalid(format!("the template's variables are not JSON: {e}")))?;
        if context.kind() != ValueKind::Map {
            return Err(invalid("the template's variables are not a JSON object".into()));
        }
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(BASE_FUEL + FUEL_PER_BYTE * variables.len() as u64));
        let mut output = Bounded(Vec::new());
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            environment.get_template(&self.name).and_then(|template| template.render_captured_to(context, &mut output).map(drop))
        }));
        match rendered {
            Ok(Ok(())) => Ok(output.0),
            Ok(Err(error)) => Err(failure(&self.name, &error)),
            Err(panic) if panic.is::<Full>() => {
                Err(Failure::new(Code::Limit, format!("{}: the rendered text is longer than {MAX_OUTPUT_BYTES} bytes", self.name)))
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// Thrown at the output's bound: the engine prints a container to its end even when writing fails, and one that holds itself twice, many
/// times over, has no end to speak of.
struct Full;

struct Bounded(Vec<u8>);

impl io::Write for &mut Bounded {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.0.len() + part.len() > MAX_OUTPUT_BYTES {
            panic_any(Full);
        }
        self.0.extend_from_slice(part);
        Ok(part.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn strftime(now: StrftimeNow, format: &str) -> Result<String, Error> {
    let mut out = vec![0u8; 4096];
    let size = now(format.as_ptr(), format.len(), out.as_mut_ptr(), out.len());
    out.truncate(size);
    match String::from_utf8(out) {
        Ok(text) if !text.is_empty() || format.is_empty() => Ok(text),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: the format gives no text or too much")),
    }
}

/// "FILE line N: what", without the engine's own place.
fn words(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    match (error.name(), error.line()) {
        (Some(name), Some(line)) => format!("{name}, line {line}: {what}"),
        _ => what,
    }
}

fn failure(name: &str, error: &Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return Failure::new(Code::Raised, raised.0.clone());
        }
        if inner.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return Failure::new(Code::Limit, format!("{name}: the template does more work than is allowed for these messages"));
        }
        cause = inner.source();
    }
    Failure::new(Code::Render, words(error))
}

/// `{% generation %}` only marks the assistant's text for training: it becomes a scope of its own, with the tag's white space control.
/// Comments, raw blocks, expressions and strings are passed over. A tag too long for the engine's recursive parser is refused.
fn without_generation_tags(source: &str) -> Result<String, Failure> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let (mut raw, mut elifs) = (false, 0);
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (mut length, code) = match rest.as_bytes().get(1) {
            Some(b'%') => tag_length(rest, "%}"),
            Some(b'#') if !raw => (rest.find("#}").map_or(rest.len(), |end| end + 2), 0),
            Some(b'{') if !raw => tag_length(rest, "}}"),
            _ => (1, 0),
        };
        let tag = &rest[..length];
        let word = tag.strip_prefix("{%").map_or("", |t| t.trim_start_matches(['-', '+']).trim_start());
        let name = word.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let was_raw = raw;
        raw = if raw { name != "endraw" } else { name == "raw" };
        if !was_raw && code > MAX_TAG_CODE_BYTES {
            let line = source[..source.len() - rest.len()].matches('\n').count() + 1;
            return Err(Failure::new(
                Code::Unsupported,
                format!("line {line}: a tag with {code} bytes of code, more than the {MAX_TAG_CODE_BYTES} supported"),
            ));
        }
        elifs += (!was_raw && name == "elif") as usize;
        if elifs > MAX_ELIFS {
            return Err(Failure::new(Code::Unsupported, format!("more than the {MAX_ELIFS} elif tags supported")));
        }
        if !was_raw && (name == "generation" || name == "endgeneration") {
            out.push_str(&tag.replacen(name, if name == "generation" { "with" } else { "endwith" }, 1));
        } else {
            // Inside a raw block a tag is text, which may begin anywhere.
            length = if was_raw && raw { 1 } else { length };
            out.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Bytes of a tag up to and with its end, and how many of them are outside strings; a string may hold the end's characters.
fn tag_length(tag: &str, end: &str) -> (usize, usize) {
    let bytes = tag.as_bytes();
    let (mut at, mut code) = (2, 2);
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            _ if bytes[at..].starts_with(end.as_bytes()) => return (at + end.len(), code),
            _ => {}
        }
        at += 1;
        code += 1;
    }
    (tag.len(), code)
}

/// chat_template of tokenizer_config.json or chat_template.json.
pub fn source_of(config: &[u8]) -> Result<String, Failure> {
    let corrupt = |message: String| Failure::new(Code::Corrupt, message);
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(config).map_err(|e| corrupt(e.to_string()))?;
    match fields.get("chat_template") {
        None | Some(serde_json::Value::Null) => Err(Failure::new(Code::Absent, "it has no chat_template")),
        Some(serde_json::Value::String(source)) => Ok(source.clone()),
        Some(serde_json::Value::Array(named)) => {
            let default = named.iter().find(|t| t.get("name").and_then(|n| n.as_str()) == Some("default"));
            let source = default.and_then(|t| t.get("template")).and_then(|t| t.as_str());
            source.map(str::to_string).ok_or_else(|| corrupt("chat_template is a list without a template named \"default\"".into()))
        }
        Some(_) => Err(corrupt("chat_template is neither a string nor a list of templates".into())),
    }
}
