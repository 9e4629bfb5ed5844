#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| keylane_service::fuzz::chunk(input));
