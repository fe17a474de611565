//! Roofline (being built).
