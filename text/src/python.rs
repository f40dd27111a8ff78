//! Where templates expect Python and the engine differs: tojson, white space, a few methods and tests.
use minijinja::value::{from_args, Kwargs, Rest, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use crate::json::NumberText;

/// Deeper values than JSON input can have come from the template alone.
const MAX_JSON_DEPTH: usize = 256;
/// The engine pays for a formatted text only once it exists.
const MAX_FORMAT_WIDTH: usize = 10_000;

/// Python's repr of a float: shortest digits, an exponent outside 1e-4 <= |v| < 1e16.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        return format!("{digits}e{exponent:+03}");
    }
    let text = value.to_string();
    if text.contains('.') {
        text
    } else {
        text + ".0"
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// json.dumps as transformers gives it to templates: tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False).
pub fn tojson(state: &State, value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let argument = |place: usize, name: &str| -> Result<Option<Value>, Error> {
        Ok(match positional.get(place) {
            Some(given) => Some(given.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        }
        .filter(|v| !v.is_none()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = match argument(1, "indent")? {
        None => None,
        Some(v) if v.as_str().is_some() => v.as_str().map(str::to_string),
        Some(v) => Some(
            " ".repeat(v.as_i64().filter(|n| *n <= 64).ok_or_else(|| invalid("tojson: indent is not a number up to 64"))?.max(0) as usize),
        ),
    };
    let separators = match argument(2, "separators")? {
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
    };
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let mut writer = JsonWriter { out: String::new(), charged: 0, state, ensure_ascii, indent, separators, sort_keys };
    writer.value(value, 0)?;
    writer.charge()?;
    Ok(Value::from(writer.out))
}

struct JsonWriter<'a, 't, 'e> {
    out: String,
    charged: usize,
    state: &'a State<'t, 'e>,
    ensure_ascii: bool,
    indent: Option<String>,
    separators: (String, String),
    sort_keys: bool,
}

impl JsonWriter<'_, '_, '_> {
    /// Pays for what was written since the last time, four times what copying would cost.
    fn charge(&mut self) -> Result<(), Error> {
        let fuel = (self.out.len() - self.charged) / 16;
        self.charged += fuel * 16;
        self.state.consume_fuel(fuel as u64)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_JSON_DEPTH {
            return Err(invalid(format!("tojson: nested deeper than {MAX_JSON_DEPTH} levels")));
        }
        if let Some(number) = value.downcast_object_ref::<NumberText>() {
            self.out.push_str(&number.text);
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&json_float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.map(|item| (None, item));
                self.container(['[', ']'], items, depth)?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                let pairs = keys.into_iter().map(|key| {
                    let item = value.get_item(&key).unwrap_or(Value::UNDEFINED);
                    (Some(key), item)
                });
                self.container(['{', '}'], pairs, depth)?;
            }
            other => return Err(invalid(format!("tojson: a value of type {other} is not JSON serializable"))),
        }
        Ok(())
    }

    fn container(&mut self, brackets: [char; 2], items: impl Iterator<Item = (Option<Value>, Value)>, depth: usize) -> Result<(), Error> {
        self.out.push(brackets[0]);
        let mut empty = true;
        for (key, item) in items {
            if !empty {
                self.out.push_str(&self.separators.0);
            }
            empty = false;
            self.new_line(depth + 1);
            if let Some(key) = key {
                self.key(&key)?;
                self.out.push_str(&self.separators.1);
            }
            self.value(&item, depth + 1)?;
            self.charge()?;
        }
        if !empty {
            self.new_line(depth);
        }
        self.out.push(brackets[1]);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    /// Keys are strings in JSON; Python writes numbers, booleans and None as their JSON text in quotes.
    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                self.out.push('"');
                self.value(key, 0)?;
                self.out.push('"');
            }
            other => return Err(invalid(format!("tojson: keys cannot be of type {other}"))),
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut from = 0;
        for (at, c) in text.char_indices() {
            if c >= ' ' && c != '"' && c != '\\' && (!self.ensure_ascii || c < '\u{7f}') {
                continue;
            }
            self.out.push_str(&text[from..at]);
            from = at + c.len_utf8();
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
            }
        }
        self.out.push_str(&text[from..]);
        self.out.push('"');
    }
}

fn json_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        }
    } else {
        float_repr(value)
    }
}

/// str.isspace: Unicode white space and the four separators U+001C to U+001F.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// str.strip and its halves: white space, or any character of `chars`.
fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left { text.trim_start_matches(drop) } else { text };
    if right {
        text.trim_end_matches(drop)
    } else {
        text
    }
}

/// The trim filter: str(value).strip(chars).
pub fn trim(value: &Value, chars: Option<&str>) -> String {
    match value.as_str() {
        Some(text) => strip(text, chars, true, true).to_string(),
        None => strip(&value.to_string(), chars, true, true).to_string(),
    }
}

/// The int filter, whose default is 0 where the engine's is an error.
pub fn int(state: &State, value: &Value, default: Option<Value>, base: Option<u32>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or(Value::from(0));
    minijinja::filters::int(state, value, Some(default), base, kwargs)
}

/// The float filter, likewise.
pub fn float(state: &State, value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = default.or(kwargs.get("default")?).unwrap_or(Value::from(0.0));
    minijinja::filters::float(state, value, Some(default), kwargs)
}

/// Methods of str that the compatibility library lacks or gives other white space; everything else goes to it.
pub fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args);
    };
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Ok(Value::from(strip(text, chars, name != "rstrip", name != "lstrip")))
        }
        "split" | "rsplit" => {
            let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.or(kwargs.get("sep")?).filter(|s| !s.is_none());
            let limit = limit.or(kwargs.get("maxsplit")?).unwrap_or(-1);
            kwargs.assert_all_used()?;
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let separator =
                separator.as_ref().map(|s| s.as_str().ok_or_else(|| invalid("split: the separator is not a string"))).transpose()?;
            split(text, separator, limit, name == "rsplit")
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(args)?;
            Ok(split_lines(text, keep_ends.unwrap_or(false)))
        }
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            let cut = if name == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
            Ok(Value::from(cut.unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            if separator.is_empty() {
                return Err(invalid("partition: empty separator"));
            }
            let parts = match if name == "partition" { text.split_once(separator) } else { text.rsplit_once(separator) } {
                Some((before, after)) => [before, separator, after],
                None if name == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "format" if widest(text) > MAX_FORMAT_WIDTH => Err(invalid(format!("format: a width above {MAX_FORMAT_WIDTH}"))),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// The largest number in a format string.
fn widest(format: &str) -> usize {
    format
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| if digits.is_empty() { 0 } else { digits.parse().unwrap_or(usize::MAX) })
        .max()
        .unwrap_or(0)
}

fn split(text: &str, separator: Option<&str>, limit: usize, from_right: bool) -> Result<Value, Error> {
    let parts: Vec<&str> = match (separator, from_right) {
        (Some(""), _) => return Err(invalid("split: empty separator")),
        (Some(separator), false) => text.splitn(limit.saturating_add(1), separator).collect(),
        (Some(separator), true) => {
            let mut parts: Vec<&str> = text.rsplitn(limit.saturating_add(1), separator).collect();
            parts.reverse();
            parts
        }
        (None, false) => {
            let (mut parts, mut rest) = (Vec::new(), strip(text, None, true, false));
            while !rest.is_empty() {
                let end = if parts.len() < limit { rest.find(is_space).unwrap_or(rest.len()) } else { rest.len() };
                parts.push(&rest[..end]);
                rest = strip(&rest[end..], None, true, false);
            }
            parts
        }
        (None, true) => {
            let (mut parts, mut rest) = (Vec::new(), strip(text, None, false, true));
            while !rest.is_empty() {
                let cut = rest.char_indices().rev().find(|(_, c)| is_space(*c)).map_or(0, |(at, c)| at + c.len_utf8());
                let start = if parts.len() < limit { cut } else { 0 };
                parts.push(&rest[start..]);
                rest = strip(&rest[..start], None, false, true);
            }
            parts.reverse();
            parts
        }
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn split_lines(text: &str, keep_ends: bool) -> Value {
    let is_end = |c: char| matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let line = rest.find(is_end).unwrap_or(rest.len());
        let mut end = line + rest[line..].chars().next().map_or(0, char::len_utf8);
        if rest[line..].starts_with("\r\n") {
            end = line + 2;
        }
        lines.push(Value::from(&rest[..if keep_ends { end } else { line }]));
        rest = &rest[end..];
    }
    Value::from(lines)
}

/// Jinja's `is sequence`: has a length and items, so strings and mappings too.
pub fn is_sequence(value: &Value) -> bool {
    value.is_undefined()
        || matches!(value.kind(), ValueKind::String | ValueKind::Map | ValueKind::Seq)
        || (value.kind() == ValueKind::Iterable && value.len().is_some())
}

pub fn is_number(value: &Value) -> bool {
    minijinja::tests::is_number(value) || value.downcast_object_ref::<NumberText>().is_some()
}

pub fn is_integer(value: &Value) -> bool {
    minijinja::tests::is_integer(value) || value.downcast_object_ref::<NumberText>().is_some_and(|n| n.integer)
}

pub fn is_float(value: &Value) -> bool {
    minijinja::tests::is_float(value) || value.downcast_object_ref::<NumberText>().is_some_and(|n| !n.integer)
}
