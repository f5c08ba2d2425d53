//! Sizes, durations and counts as users write them: one grammar for every program.
//!
//! `python/vtax/core/units.py` implements the same grammar; `tests/data/units.json` is the table that
//! both are tested against. The errors are the reasons; the caller names the option.

use std::time::Duration;

const SIZE_LETTERS: &str = "kmgtp";
/// No machine has more; a larger number is a typing error.
const LARGEST_SIZE: u64 = 1 << 60;
/// Units of a duration and their nanoseconds, in descending order, in which the parts of a duration
/// come.
const DURATION_UNITS: [(&str, f64); 7] = [
    ("d", 86_400e9),
    ("h", 3_600e9),
    ("m", 60e9),
    ("s", 1e9),
    ("ms", 1e6),
    ("us", 1e3),
    ("ns", 1.0),
];
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
const COUNT_LETTERS: &str = "kmgt";
const LARGEST_COUNT: u64 = 1_000_000_000_000_000_000;

/// Bytes of `512k`, `256M`, `1.5G`, `1GiB` or a plain number; the multiples are binary.
///
/// # Errors
/// The reason when it is not a size, zero, or not a whole number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || "not a size such as 65536, 64K, 512M or 2G".to_owned();
    let lower = text.trim().to_ascii_lowercase();
    let (number, unit) = split(&lower).ok_or_else(wrong)?;
    let unit = unit.trim_start();
    let (prefix, rest) = letter(unit, SIZE_LETTERS);
    if !matches!(rest, "" | "b" | "ib") || (rest == "ib" && prefix == 0) {
        return Err(wrong());
    }
    let bytes = scaled(number, 1 << (10 * prefix)).ok_or("not a whole number of bytes")?;
    match bytes {
        1..=LARGEST_SIZE => Ok(bytes),
        _ => Err("not between 1 byte and 1024 PiB".to_owned()),
    }
}

/// Time of `90s`, `5m`, `1h30m`, `250ms`, `50us` or a plain number of seconds.
///
/// # Errors
/// The reason when it is not a duration, zero, or more than a year.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "not a duration such as 90s, 5m, 1h30m or 250ms".to_owned();
    let lower = text.trim().to_ascii_lowercase();
    let nanoseconds = nanoseconds(&lower).ok_or_else(wrong)?;
    Duration::try_from_secs_f64(nanoseconds / 1e9)
        .ok()
        .filter(|time| !time.is_zero() && *time <= LONGEST)
        .ok_or_else(|| "not between 0 and 366 days".to_owned())
}

/// The length of a window in which a daemon looks at its host: a duration from 100 ms to 1 hour.
///
/// # Errors
/// The reason when it is not such a duration.
pub fn window(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    let time = duration(text)?;
    let fits = range.contains(&time);
    fits.then_some(time)
        .ok_or_else(|| "not from 100ms to 1h".to_owned())
}

fn nanoseconds(text: &str) -> Option<f64> {
    if text
        .chars()
        .all(|letter| letter.is_ascii_digit() || letter == '.')
    {
        return text.parse::<f64>().ok().map(|seconds| seconds * 1e9);
    }
    let mut rest = text;
    let mut units = DURATION_UNITS.iter();
    let mut sum = 0.0;
    while !rest.is_empty() {
        let (number, after) = split(rest)?;
        let end = after.find(|letter: char| !letter.is_ascii_alphabetic());
        let (unit, next) = after.split_at(end.unwrap_or(after.len()));
        // 1h30m, but neither 30m1h nor 5m5m: those are more likely to be mistakes.
        let (_, length) = units.find(|(name, _)| *name == unit)?;
        sum += number.parse::<f64>().ok()? * length;
        rest = next;
    }
    Some(sum)
}

/// A count such as `1000000`, `1e6`, `1M`, `2.5G` or `50Mi`: the letters are decimal, with an `i`
/// binary.
///
/// # Errors
/// The reason when it is not a number, not whole, or above 10^18.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || "not a number such as 1000000, 1M or 50Mi".to_owned();
    let lower = text.trim().to_ascii_lowercase();
    let (number, after) = split(&lower).ok_or_else(wrong)?;
    let (exponent, unit) = exponent(after).ok_or_else(wrong)?;
    let (prefix, rest) = letter(unit, COUNT_LETTERS);
    let factor = match rest {
        "" => 1000_u64.pow(prefix),
        "i" if prefix > 0 => 1024_u64.pow(prefix),
        _ => return Err(wrong()),
    };
    10_u64
        .checked_pow(exponent)
        .and_then(|power| factor.checked_mul(power))
        .and_then(|factor| scaled(number, factor))
        .filter(|count| *count <= LARGEST_COUNT)
        .ok_or_else(|| "not a whole number up to 1e18".to_owned())
}

/// `DIGITS` or `DIGITS.DIGITS`, and the rest of the text.
fn split(text: &str) -> Option<(&str, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let fraction = match text.get(whole..)?.strip_prefix('.') {
        Some(rest) => match digits(rest) {
            0 => return None,
            length => 1 + length,
        },
        None => 0,
    };
    (whole > 0).then(|| text.split_at(whole + fraction))
}

/// `eNN`, and the rest of the text; 0 where there is none.
fn exponent(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix('e') else {
        return Some((0, text));
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at(digits);
    let short = (1..=2).contains(&digits);
    short.then(|| Some((number.parse().ok()?, rest)))?
}

/// The power that one of `letters` stands for, from 1 on, and the rest of the text; 0 without a
/// letter.
fn letter<'a>(text: &'a str, letters: &str) -> (u32, &'a str) {
    (1..)
        .zip(letters.chars())
        .find_map(|(power, letter)| Some((power, text.strip_prefix(letter)?)))
        .unwrap_or((0, text))
}

/// The number times the factor, exactly; `None` when the product is not whole or too large.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let decimals = u32::try_from(fraction.len()).ok()?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = digits.checked_mul(factor.into())?;
    let divisor = 10_u128.checked_pow(decimals)?;
    let exact = product.is_multiple_of(divisor).then(|| product / divisor)?;
    u64::try_from(exact).ok()
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn check<T: Debug>(
        kind: &str,
        parse: impl Fn(&str) -> Result<T, String>,
        same: impl Fn(&T, &Value) -> bool,
    ) {
        let table = include_str!("../../../../tests/data/units.json");
        let table: Value = serde_json::from_str(table).unwrap();
        for (text, value) in table[kind]["accepted"].as_object().unwrap() {
            let parsed = parse(text).unwrap();
            assert!(same(&parsed, value), "{text}: {parsed:?}, not {value}");
        }
        for text in table[kind]["rejected"].as_array().unwrap() {
            let parsed = parse(text.as_str().unwrap());
            assert!(parsed.is_err(), "{text}: {parsed:?}");
        }
    }

    #[test]
    fn the_table_that_python_is_tested_against() {
        check("size", size, |bytes, value| value.as_u64() == Some(*bytes));
        check("count", count, |count, value| {
            value.as_u64() == Some(*count)
        });
        check("duration", duration, |time, value| {
            (time.as_secs_f64() - value.as_f64().unwrap()).abs() < 1e-9
        });
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "[0-9.eEkmgtpibsdhun ]{0,12}|.{0,12}") {
            let _ = (size(&text), duration(&text), count(&text));
        }

        #[test]
        fn every_nanosecond_is_kept(nanoseconds in 1_u64..=1_000_000_000) {
            let parsed = duration(&format!("{nanoseconds}ns"));
            prop_assert_eq!(parsed, Ok(Duration::from_nanos(nanoseconds)));
        }
    }
}
