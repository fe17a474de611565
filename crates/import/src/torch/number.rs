//! Decimal text to integers: microseconds to nanoseconds, and ids, without floating point.

/// Microseconds as decimal text to integer nanoseconds: up to three decimals are exact, further
/// ones are rounded (half away from zero). Signs and exponents are understood.
///
/// `None` when the text is not a finite number, or is out of the range of `i64` nanoseconds.
pub(super) fn microseconds(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let magnitude = scaled_decimal(digits, 3)?;
    let magnitude = i64::try_from(magnitude).ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

/// An unsigned integer as decimal text; a fraction of zeros (`7.0`) is allowed.
pub(super) fn unsigned(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let whole = match memchr::memchr(b'.', text) {
        Some(dot) if text[dot + 1..].iter().all(|&digit| digit == b'0') => &text[..dot],
        _ => text,
    };
    if whole.is_empty() {
        return None;
    }
    whole.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// `digits[.digits][e[+-]digits]` times 10^`scale`, rounded half up to an integer.
fn scaled_decimal(text: &[u8], scale: i32) -> Option<u128> {
    // 10^37 < u128::MAX: 36 digits always fit, and one more digit to round by.
    const KEPT: u32 = 36;
    let (mut mantissa, mut kept, mut exponent) = (0u128, 0u32, scale);
    let (mut any, mut at, mut after_dot) = (false, 0, false);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                any = true;
                if kept < KEPT {
                    mantissa = mantissa * 10 + u128::from(byte - b'0');
                    kept += u32::from(mantissa > 0);
                    exponent -= i32::from(after_dot);
                } else {
                    exponent = exponent.saturating_add(i32::from(!after_dot));
                }
            }
            b'.' if !after_dot => after_dot = true,
            b'e' | b'E' => {
                exponent = exponent.saturating_add(small_exponent(&text[at + 1..])?);
                at = text.len() - 1;
            }
            _ => return None,
        }
        at += 1;
    }
    if !any {
        return None;
    }
    if mantissa == 0 {
        return Some(0);
    }
    let power = 10u128.checked_pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return mantissa.checked_mul(power?);
    }
    let Some(power) = power else { return Some(0) };
    let (quotient, rest) = (mantissa / power, mantissa % power);
    Some(quotient + u128::from(rest >= power - rest))
}

fn small_exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits
        .iter()
        .fold(0i32, |value, &byte| value.saturating_mul(10).saturating_add(i32::from(byte - b'0')));
    Some(sign * magnitude.min(100_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(microseconds(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn three_decimals_are_exact() {
        check("5112626518189.922", Some(5_112_626_518_189_922));
        check("1715580000123456.789", Some(1_715_580_000_123_456_789));
        check("5.001", Some(5_001));
        check("5.1", Some(5_100));
        check("7", Some(7_000));
        check("-0.5", Some(-500));
        check(" 12.5 ", Some(12_500));
    }

    #[test]
    fn more_decimals_are_rounded_half_away_from_zero() {
        check("1.0004", Some(1_000));
        check("1.0005", Some(1_001));
        check("-1.0005", Some(-1_001));
        check("36755584001.1976", Some(36_755_584_001_198));
        check("0.00049999999999999999999999999999999999999999999", Some(0));
        check("0.99999999999999999999999999999999999999999999999", Some(1_000));
    }

    #[test]
    fn exponents_shift_the_point() {
        check("1.5e3", Some(1_500_000));
        check("1.715580000123456789E+15", Some(1_715_580_000_123_456_789));
        check("25e-4", Some(3));
        check("1e-999999999999", Some(0));
        check("0e999999999999", Some(0));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "-", ".", "nan", "inf", "1e", "1e+", "1.2.3", "0x10", "1e300", "null"] {
            check(text, None);
        }
        check("9223372036854775.807", Some(i64::MAX));
        check("9223372036854775.808", None);
    }

    #[test]
    fn ids_keep_all_64_bits() {
        assert_eq!(unsigned(b"10159970886766084423"), Some(10_159_970_886_766_084_423));
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(unsigned(b"9007199254740993"), Some((1 << 53) + 1));
        assert_eq!(unsigned(b"7.0"), Some(7));
        for text in [&b"-3"[..], b"7.5", b"", b"x", b"."] {
            assert_eq!(unsigned(text), None);
        }
    }
}
