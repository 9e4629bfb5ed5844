//! Maps decode to the encoded progress; other text is refused, and no text makes the decoder panic.

use keylane_stream::Position;
use keylane_stream::tracker::{
    DecodedMap, ForeignMapPolicy, OffsetMapError, OffsetMapLimit, OffsetMapPolicy, Progress,
    UnreadableMapPolicy, decode, highest_epoch,
};
use proptest::prelude::*;

const STREAM: &[u8] = b"topic 3f6c, partition 7";

const OURS_ALONE: OffsetMapPolicy = OffsetMapPolicy {
    parallel_consumer: ForeignMapPolicy::Distrust,
    unreadable: UnreadableMapPolicy::Refuse,
};

fn at(number: u64) -> Position {
    Position::new(number)
}

fn progress() -> impl Strategy<Value = Progress> {
    let gaps = prop::collection::vec(prop_oneof![3 => 1u64..5, 1 => 1u64..100_000], 0..120);
    (0u64..1 << 60, gaps, 0u64..1000).prop_map(|(start, gaps, above)| {
        let incomplete = gaps.iter().scan(start, |last, gap| {
            *last += gap;
            Some(at(*last))
        });
        let incomplete: Vec<_> = incomplete.collect();
        let last = incomplete.last().copied().unwrap_or(at(start));
        Progress::with_map(at(start), last.after(above).unwrap(), incomplete)
    })
}

/// Leader epochs; `None` for the first version, which has no field for it.
fn epoch() -> impl Strategy<Value = Option<u32>> {
    prop::option::of(any::<u32>())
}

fn written(progress: &Progress, epoch: Option<u32>) -> String {
    match epoch {
        None => progress.encode(STREAM),
        Some(epoch) => progress.encode_with_epoch(STREAM, epoch),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_was_written_is_read(progress in progress(), epoch in epoch()) {
        let text = written(&progress, epoch);
        let found = decode(progress.watermark(), &text, STREAM, OURS_ALONE);
        prop_assert_eq!(found, Ok(DecodedMap::Progress(progress)));
        prop_assert_eq!(highest_epoch(&text), epoch);
    }

    #[test]
    fn a_limited_map_fits_in_both_versions(
        progress in progress(),
        epoch in epoch(),
        limit in OffsetMapLimit::MIN_CHARACTERS..4096,
    ) {
        let shorter = progress.shortened(OffsetMapLimit::characters(limit).unwrap());
        prop_assert!(written(&shorter, epoch).len() <= limit);
    }

    #[test]
    fn one_changed_character_is_noticed(
        progress in progress(),
        epoch in epoch(),
        at in any::<prop::sample::Index>(),
        to in any::<char>(),
    ) {
        let text = written(&progress, epoch);
        let mut letters: Vec<_> = text.chars().collect();
        let at = at.index(letters.len());
        prop_assume!(letters[at] != to);
        letters[at] = to;
        let damaged: String = letters.into_iter().collect();
        prop_assert!(decode(progress.watermark(), &damaged, STREAM, OURS_ALONE).is_err());
    }

    #[test]
    fn a_cut_map_is_noticed(
        progress in progress(),
        epoch in epoch(),
        at in any::<prop::sample::Index>(),
    ) {
        let text = written(&progress, epoch);
        let cut = &text[..at.index(text.len() - 1) + 1];
        prop_assert!(decode(progress.watermark(), cut, STREAM, OURS_ALONE).is_err());
    }

    #[test]
    fn a_map_belongs_to_its_position_and_its_stream(
        progress in progress(),
        epoch in epoch(),
        off in 1u64..100,
    ) {
        let text = written(&progress, epoch);
        let elsewhere = progress.watermark().after(off).unwrap();
        prop_assert_eq!(decode(elsewhere, &text, STREAM, OURS_ALONE), Err(OffsetMapError::Damaged));
        let other = b"topic 3f6d, partition 7";
        let found = decode(progress.watermark(), &text, other, OURS_ALONE);
        prop_assert_eq!(found, Err(OffsetMapError::OtherStream));
    }

    #[test]
    fn no_text_makes_it_panic_or_is_ours(
        text in "(KL[12]:)?[A-Za-z0-9+/=]{0,80}",
        from in 0u64..1 << 62,
    ) {
        if !text.is_empty() {
            prop_assert!(decode(at(from), &text, STREAM, OURS_ALONE).is_err());
        }
        let _ = decode(at(from), &text, STREAM, OffsetMapPolicy::default());
    }

    #[test]
    fn no_bytes_behind_a_foreign_name_make_it_panic(
        name in prop::sample::select(b"laosnJepL\xee\x01\x02".to_vec()),
        mut bytes in prop::collection::vec(any::<u8>(), 0..60),
        zstandard in any::<bool>(),
        from in 0u64..=Position::END.get(),
    ) {
        if zstandard {
            bytes.splice(0..0, [0x28, 0xb5, 0x2f, 0xfd]);
        }
        bytes.insert(0, name);
        let text = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &bytes);
        if let Ok(found) = decode(at(from), &text, STREAM, OffsetMapPolicy::default()) {
            // No position below the commit is complete, and the commit is not skipped.
            prop_assert!(!found.into_progress().is_done(at(from)));
        }
    }
}

/// A map with a valid checksum and content that no encoder writes: the decoder must check the form
/// itself.
#[test]
fn a_good_checksum_does_not_excuse_a_bad_form() {
    let seal = |watermark: u64, inside: &[u8]| {
        let mut body = crc32c::crc32c(STREAM).to_le_bytes().to_vec();
        body.extend(inside);
        let sum = crc32c::crc32c(b"KL1");
        let sum = crc32c::crc32c_append(sum, &watermark.to_le_bytes());
        let sum = crc32c::crc32c_append(sum, &body);
        body.extend(sum.to_le_bytes());
        let text = base64::Engine::encode(&base64::prelude::BASE64_STANDARD_NO_PAD, &body);
        decode(at(watermark), &format!("KL1:{text}"), STREAM, OURS_ALONE)
    };
    assert_eq!(seal(9, &[0]), Ok(DecodedMap::Progress(Progress::up_to(at(9)))));
    let one = Progress::with_map(at(9), at(12), vec![at(10)]);
    assert_eq!(seal(9, &[3, 1, 0, 0]), Ok(DecodedMap::Progress(one)));
    for bad in [
        &[][..],
        &[1],                                                        // a map, and no count
        &[1, 0],                            // the end is the watermark itself
        &[0x80, 0],                         // a number longer than it need be
        &[3, 1],                            // a count, and no gaps
        &[3, 1, 63, 0],                     // a parameter out of range
        &[3, 1, 0, 0, 0],                   // a byte too many
        &[3, 1, 0, 2],                      // a bit too many
        &[3, 1, 0, 1],                      // a position that is not below a done one
        &[3, 1, 1, 0],                      // not the best parameter
        &[3, 0xff, 0xff, 0xff, 0x7f, 0, 0], // a count that the bytes don't bear out
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0], // beyond the last position
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], // more than 63 bits
        &[3, 1, 62, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // a gap of more than 64 bits
    ] {
        assert_eq!(seal(9, bad), Err(OffsetMapError::Damaged), "{bad:?}");
    }
}

#[test]
fn every_map_of_the_parallel_consumer_is_taken_over() {
    let mut maps = 0;
    for line in include_str!("../data/parallel-consumer-0.5.3.2.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let fields: Vec<_> = line.split(' ').collect();
        let [name, encoding, committed, highest, incomplete, text] = fields[..] else {
            panic!("{line}")
        };
        let committed: u64 = committed.parse().unwrap();
        let end = at(highest.parse::<u64>().unwrap() + 1);
        let offsets = incomplete.split(',').filter_map(|offset| offset.parse::<u64>().ok());
        let incomplete = offsets.map(|offset| at(committed + offset)).collect();
        let expected = Progress::with_map(at(committed), end, incomplete);
        let found = decode(at(committed), text, STREAM, OffsetMapPolicy::default());
        assert_eq!(found, Ok(DecodedMap::TakenOver(expected)), "{name} {encoding}");
        assert_eq!(decode(at(committed), text, STREAM, OURS_ALONE), Err(OffsetMapError::Foreign));
        maps += 1;
    }
    assert_eq!(maps, 62);
}

#[test]
fn the_policy_decides_about_unreadable_maps() {
    let repeat =
        OffsetMapPolicy { unreadable: UnreadableMapPolicy::Repeat, ..OffsetMapPolicy::default() };
    let damaged = Progress::up_to(at(4)).encode(STREAM);
    for (text, error) in [
        ("hello", OffsetMapError::Foreign),
        ("KL3:AAAA", OffsetMapError::Later),
        (&damaged, OffsetMapError::Damaged),
        ("AQAAAA==", OffsetMapError::KafkaStreams),
        // A bit set with a bit beyond its length; run lengths with an empty run in the middle.
        ("bAABAwA=", OffsetMapError::Foreign),
        ("bgABAAAAAQ==", OffsetMapError::Foreign),
        // Two thousand million incomplete positions in four bytes.
        ("ZX////8=", OffsetMapError::Foreign),
    ] {
        assert_eq!(decode(at(5), text, STREAM, OffsetMapPolicy::default()), Err(error), "{text}");
        let found = decode(at(5), text, STREAM, repeat);
        assert_eq!(found, Ok(DecodedMap::Repeated(Progress::up_to(at(5)), error)), "{text}");
    }
    let nothing = DecodedMap::Progress(Progress::up_to(at(5)));
    assert_eq!(decode(at(5), "", STREAM, OURS_ALONE), Ok(nothing));
}

/// A map that marks the committed position complete contradicts the commit, by which it is the
/// next.
#[test]
fn a_foreign_map_cannot_skip_the_committed_position() {
    // A bit set of two positions, both complete.
    let found =
        decode(at(5), "bAACAwA=", STREAM, OffsetMapPolicy::default()).unwrap().into_progress();
    assert_eq!(
        (found.watermark(), found.is_done(at(5)), found.is_done(at(6))),
        (at(5), false, true)
    );
}

/// Maps that revision 46944ce wrote, one a line: stream, watermark, end, incomplete positions, map.
#[test]
fn a_map_of_an_earlier_version_is_read() {
    let lines = include_str!("../../../keylane-cli/tests/fixtures/46944ce/maps.tsv");
    let positions = |list: &str| -> Vec<_> {
        list.split(',').filter(|one| !one.is_empty()).map(|one| at(one.parse().unwrap())).collect()
    };
    for line in lines.lines() {
        let [stream, from, end, incomplete, map] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let (from, end) = (at(from.parse().unwrap()), at(end.parse().unwrap()));
        let expected = Progress::with_map(from, end, positions(incomplete));
        let found = decode(from, map, stream.as_bytes(), OURS_ALONE);
        // The encoder can still write this version, for members that know no other.
        assert_eq!(expected.encode(stream.as_bytes()), map, "{line}");
        assert_eq!(found, Ok(DecodedMap::Progress(expected)), "{line}");
        assert_eq!(highest_epoch(map), None, "{line}");
    }
    assert_eq!(lines.lines().count(), 6);
}
