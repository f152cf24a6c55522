//! The volume group of a physical volume of LVM, read without LVM's programs, which a live system may
//! lack.

/// The label and the text of the metadata lie in these first bytes.
pub(super) const AREA: usize = 1 << 20;
const LABEL: &[u8] = b"LABELONE";
/// The line after the id of a volume group; a physical or logical volume has another one.
const AFTER_ID: &str = "\"\nseqno = ";
const BEFORE_ID: &str = " {\nid = \"";
/// Length of an id of LVM with its dashes.
const ID: usize = 38;

/// Name and id of the volume group. Each version of the metadata has the same id.
pub(super) fn parse(bytes: &[u8]) -> Option<(String, String)> {
    let sectors = bytes.chunks(512).take(4);
    if !sectors.into_iter().any(|sector| sector.starts_with(LABEL)) {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let before = &text[..text.rfind(AFTER_ID)?];
    let (before, id) = before.rsplit_once(BEFORE_ID)?;
    let name = before.rsplit(['\n', '\0']).next()?;
    (id.len() == ID && !name.is_empty()).then(|| (name.to_owned(), id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VG_ID: &str = "Yc3LlG-Xlqp-Cc2h-1mBu-0bDf-MvYq-9N2kZa";

    fn volume(text: &str) -> Vec<u8> {
        let mut bytes = vec![0; 64 * 1024];
        bytes[512..520].copy_from_slice(LABEL);
        bytes[4608..4608 + text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn volume_group_is_read_from_metadata() {
        let text = format!(
            "vg0 {{\nid = \"{VG_ID}\"\nseqno = 3\nformat = \"lvm2\"\nphysical_volumes {{\n\npv0 {{\nid = \"{}\"\ndevice = \"/dev/sda\"\n}}\n}}\n}}\n",
            "x".repeat(ID)
        );
        assert_eq!(parse(&volume(&text)), Some(("vg0".to_owned(), VG_ID.to_owned())));
        for (name, bytes) in [
            ("no volume", vec![0; 4096]),
            ("empty", vec![]),
            ("in no group", volume("")),
            ("cut off", volume("vg0 {\nid = \"Yc3LlG")),
            ("an id of another length", volume("vg0 {\nid = \"abc\"\nseqno = 3\n")),
        ] {
            assert_eq!(parse(&bytes), None, "{name}");
        }
    }
}
