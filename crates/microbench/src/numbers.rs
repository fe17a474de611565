//! Narrow floats on the host, and the test data that device and host make alike.

/// The value of a BF16.
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest BF16, ties to even. Not for NaN.
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The value of an FP8 E4M3 (no infinities; 0x7f and 0xff are NaN).
pub(crate) fn from_e4m3(bits: u8) -> f32 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 3 & 0xf), f32::from(bits & 7));
    match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => sign * mantissa / 8.0 * 2f32.powi(-6),
        _ => sign * (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    }
}

/// The value of an FP4 E2M1, the low four bits.
pub(crate) fn from_e2m1(bits: u8) -> f32 {
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(bits & 7)];
    if bits & 8 == 0 { magnitude } else { -magnitude }
}

/// A hash of an element's index: the same on host and device (`fill.cu`).
pub(crate) fn hash(index: u64, seed: u64) -> u32 {
    let mut x = (index as u32) ^ ((index >> 32) as u32).wrapping_mul(0x9e37_79b9);
    x = x.wrapping_add((seed as u32).wrapping_mul(0x85eb_ca6b));
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Test data in BF16: one of -128..=127, by 128.
pub(crate) fn bf16_data(index: u64, seed: u64) -> f32 {
    ((hash(index, seed) >> 24) as i32 - 128) as f32 / 128.0
}

/// Test data in FP8: one of -8..=7, by 8.
pub(crate) fn fp8_data(index: u64, seed: u64) -> f32 {
    ((hash(index, seed) >> 28) as i32 - 8) as f32 / 8.0
}

/// Test data in FP4: any of its 16 values; two lie in a byte, the even one low.
pub(crate) fn fp4_data(index: u64, seed: u64) -> f32 {
    let byte = hash(index / 2, seed) >> 24;
    from_e2m1((byte >> (4 * (index % 2))) as u8 & 0xf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_the_nearest_even() {
        // 1 + 2^-8 lies between 1 (0x3f80) and 1 + 2^-7 (0x3f81): ties to the even 0x3f80;
        // 1 + 3 x 2^-8 ties to the even 0x3f82
        assert_eq!(to_bf16(1.0 + 2f32.powi(-8)), 0x3f80);
        assert_eq!(to_bf16(1.0 + 3.0 * 2f32.powi(-8)), 0x3f82);
        assert_eq!(to_bf16(-2.5), 0xc020);
        assert_eq!(from_bf16(0xc020), -2.5);
    }

    #[test]
    fn e4m3_values() {
        // largest 0x7e = 1.75 x 2^8, least normal 0x08 = 2^-6, least subnormal 2^-9
        assert_eq!(from_e4m3(0x7e), 448.0);
        assert_eq!(from_e4m3(0x08), 2f32.powi(-6));
        assert_eq!(from_e4m3(0x01), 2f32.powi(-9));
        assert_eq!(from_e4m3(0xb8), -1.0);
        assert!(from_e4m3(0x7f).is_nan());
    }

    #[test]
    fn e2m1_values() {
        assert_eq!([0, 1, 7, 9, 15].map(from_e2m1), [0.0, 0.5, 6.0, -0.5, -6.0]);
    }

    #[test]
    fn test_data_is_exact_in_its_type() {
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..4096 {
            let value = bf16_data(index, 3);
            assert_eq!(from_bf16(to_bf16(value)), value);
            let narrow = fp8_data(index, 3);
            assert!((0..=255).any(|bits| from_e4m3(bits) == narrow), "{narrow}");
            seen.insert((value * 128.0) as i32);
        }
        // 4096 draws of 256 values
        assert!(seen.len() > 250 && *seen.first().unwrap() == -128, "{}", seen.len());
    }
}
