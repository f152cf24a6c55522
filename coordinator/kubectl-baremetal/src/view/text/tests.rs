use super::*;

#[test]
fn ages_are_those_of_kubectl() {
    let now: Timestamp = "2026-01-03T00:00:00Z".parse().unwrap();
    for (since, want) in [
        ("2026-01-02T23:58:30Z", "90s"),
        ("2026-01-02T23:50:00Z", "10m"),
        ("2026-01-02T19:00:00Z", "5h"),
        ("2025-12-01T00:00:00Z", "33d"),
        ("2026-01-03T00:00:10Z", "0s"),
    ] {
        assert_eq!(format_age(Some(since.parse().unwrap()), now), want);
    }
}

#[test]
fn last_column_alone_is_shortened() {
    let rows = vec![
        vec![
            "host-1".to_owned(),
            paint(style_of(Attention::Act), "Failed"),
            "delete the Machine now".to_owned(),
        ],
        vec!["h".to_owned(), "Available".to_owned(), "-".to_owned()],
    ];
    let plain = |width| {
        let table = format_table(&["NAME", "STATE", "NEXT ACTION"], rows.clone(), width);
        anstream::adapter::strip_str(&table).to_string()
    };
    let want = "\
NAME     STATE       NEXT ACTION
host-1   Failed      delete the Machine now
h        Available   -";
    assert_eq!(plain(None), want);
    let narrow = plain(Some(34));
    assert!(narrow.lines().all(|line| line.chars().count() <= 34), "{narrow}");
    assert!(narrow.contains('…') && narrow.contains("host-1   Failed      delete"), "{narrow}");
}
