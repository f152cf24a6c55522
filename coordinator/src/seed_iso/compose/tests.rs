//! The judge of what is composed is the real xorriso, and sgdisk for partition
//! tables.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use super::*;

/// How an ISO is made for these tests.
struct Maker {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// The image is also a volume from its first partition on.
    has_volume: bool,
    has_guid_table: bool,
    /// Names without Rock Ridge and Joliet have eight characters.
    has_short_names: bool,
}

#[rustfmt::skip]
const MAKERS: &[Maker] = &[
    Maker {
        // What `elemental build-iso` gives to xorriso.
        name: "stock", program: "xorriso", has_volume: true, has_guid_table: true,
        has_short_names: false,
        arguments: &[
            "-volid", "COS_LIVE", "-padding", "0", "-outdev", "made.iso", "-map", "tree", "/", "-chmod", "0755", "--",
            "-append_partition", "2", "0xef", "efi.img", "-boot_image", "any", "cat_path=/boot/boot.catalog",
            "-boot_image", "any", "cat_hidden=on", "-boot_image", "any", "efi_path=--interval:appended_partition_2:all::",
            "-boot_image", "any", "platform_id=0xef", "-boot_image", "any", "appended_part_as=gpt",
            "-boot_image", "any", "partition_offset=16",
        ],
    },
    Maker {
        name: "Joliet, partitions of the master boot record", program: "xorriso", has_volume: true, has_guid_table: false,
        has_short_names: false,
        arguments: &[
            "-volid", "COS_LIVE", "-joliet", "on", "-outdev", "made.iso", "-map", "tree", "/", "--",
            "-append_partition", "2", "0xef", "efi.img",
            "-boot_image", "any", "efi_path=--interval:appended_partition_2:all::", "-boot_image", "any", "partition_offset=16",
        ],
    },
    Maker {
        name: "no boot at all", program: "xorriso", has_volume: false, has_guid_table: false,
        has_short_names: false,
        arguments: &["-as", "mkisofs", "-quiet", "-r", "-J", "-V", "COS_LIVE", "-o", "made.iso", "tree"],
    },
    Maker {
        name: "BIOS and UEFI by GRUB", program: "grub-mkrescue", has_volume: false, has_guid_table: true,
        has_short_names: true,
        arguments: &["-o", "made.iso", "--fonts=", "--themes=", "--locales=", "--install-modules=normal iso9660", "tree"],
    },
];

/// These tests also run where nothing but Rust is installed; `make test`
/// installs the tools, and sets `NO_SKIPS`: then none is left out.
fn has_tools() -> bool {
    ["xorriso", "grub-mkrescue", "mformat", "sgdisk"].iter().all(|tool| {
        let found = Command::new(tool).arg("--version").output().is_ok();
        if !found {
            let may_skip = std::env::var_os("NO_SKIPS").is_none();
            assert!(may_skip, "{tool} is not installed: install the packages of iso/packages.host");
            eprintln!("skipped: {tool} of iso/packages.host is not installed");
        }
        found
    })
}

fn run(program: &str, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    let output = output
        .unwrap_or_else(|error| panic!("{program}: {error}: install the packages of iso/packages.host"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text
}

/// A tree with a full root directory, files of every kind of size, and
/// directories below others.
fn plant_tree(directory: &Path, has_config: bool) {
    let tree = directory.join("tree");
    for path in ["boot/x86_64/loader", "EFI/BOOT", "a/b/c"] {
        std::fs::create_dir_all(tree.join(path)).unwrap();
    }
    let write = |path: &str, content: &[u8]| std::fs::write(tree.join(path), content).unwrap();
    write("boot/x86_64/loader/linux", &vec![1; 300_000]);
    write("boot/x86_64/loader/rootfs.squashfs", &vec![2; 3_000_001]);
    write("EFI/BOOT/grub.cfg", b"menu");
    write("a/b/c/empty", b"");
    for index in 0..40 {
        write(&format!("a file of the root, number {index}"), b"x");
    }
    if has_config {
        std::fs::create_dir(tree.join("iso-config")).unwrap();
        std::fs::create_dir(tree.join("iso-config/deep")).unwrap();
        write("iso-config/deep/other.yaml", b"deep");
        write("iso-config/site.yaml", b"of the site");
        write("iso-config/cloud-config.yaml", b"the former one");
        write("livecd-cloud-config.yaml", &[b'\n'; 9000]);
    }
    std::fs::write(directory.join("efi.img"), vec![3; 1 << 20]).unwrap();
}

pub(super) const AGENT: &[u8] = include_bytes!("tests.rs");

pub(super) fn new_files() -> Vec<NewFile> {
    let text = |content: &str| Content::Text(content.to_owned().into());
    let file = |directory, name, content: &str| NewFile { directory, name, content: text(content) };
    vec![
        NewFile {
            directory: None,
            name: "baremetal-agent",
            content: Content::Agent { len: AGENT.len() as u64 },
        },
        file(None, "livecd-cloud-config.yaml", "elemental: {}\n"),
        file(Some("iso-config"), "cloud-config.yaml", &"stages: {}\n".repeat(1000)),
    ]
}

pub(super) fn render(overlay: &Overlay, base: &[u8]) -> Vec<u8> {
    let mut whole = vec![];
    for piece in overlay.pieces(Extent { at: 0, len: overlay.size() }) {
        match piece {
            Piece::Patch(bytes) => whole.extend(bytes),
            Piece::Base(extent) => {
                let at = usize::try_from(extent.at).unwrap();
                whole.extend(&base[at..at + usize::try_from(extent.len).unwrap()]);
            }
            Piece::Agent(extent) => {
                let at = usize::try_from(extent.at).unwrap();
                whole.extend(&AGENT[at..at + usize::try_from(extent.len).unwrap()]);
            }
        }
    }
    whole
}

/// Every path that xorriso lists, with mode and size as `lsdl` shows them, and
/// the content that it extracts.
fn list_files(directory: &Path, image: &str, names: &str) -> BTreeMap<String, (String, Vec<u8>)> {
    let listed =
        run("xorriso", &["-read_fs", names, "-indev", image, "-find", "/", "-exec", "lsdl"], directory);
    let out = directory.join("out");
    if out.exists() {
        run("chmod", &["-R", "u+w", "out"], directory);
        std::fs::remove_dir_all(&out).unwrap();
    }
    run(
        "xorriso",
        &["-read_fs", names, "-osirrox", "on", "-indev", image, "-extract", "/", "out"],
        directory,
    );
    let entry = |line: &str| {
        let (rest, path) = line.split_once(" '")?;
        let path = path.strip_suffix('\'')?.to_owned();
        let attributes = rest.split_whitespace().take(5).collect::<Vec<_>>().join(" ");
        let file = out.join(path.trim_start_matches('/'));
        let content = if file.is_file() { std::fs::read(file).unwrap() } else { vec![] };
        let path = fold_name(&path, names);
        (rest.starts_with('-') || rest.starts_with('d')).then_some((path, (attributes, content)))
    };
    listed.lines().filter_map(entry).collect()
}

/// Names without Rock Ridge and Joliet have fewer characters.
fn fold_name(path: &str, names: &str) -> String {
    if names == "any" { path.to_owned() } else { path.to_lowercase().replace('-', "_") }
}

/// Every directory is where the path table, its parent and its children say.
fn check_directories(image: &[u8], volume: u64) {
    let mut base = Base::new(Cursor::new(image)).unwrap();
    for tree in Tree::read_all(&mut base, volume).unwrap() {
        tree.check(&mut base);
    }
}

fn boot_images(directory: &Path, image: &str) -> BTreeMap<String, Vec<u8>> {
    let out = directory.join("boot-images");
    let _ = std::fs::remove_dir_all(&out);
    run("xorriso", &["-osirrox", "on", "-indev", image, "-extract_boot_images", "boot-images"], directory);
    // Partition tables and catalog name places: their effect is compared.
    let images = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap());
    let named =
        images.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| name.starts_with("eltorito_img") || name.starts_with("gpt_part2")).collect()
}

fn check_made(maker: &Maker, has_config: bool) {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    plant_tree(directory, has_config);
    run(maker.program, maker.arguments, directory);
    let base = std::fs::read(directory.join("made.iso")).unwrap();
    let mut reader = Base::new(Cursor::new(&base[..])).unwrap();
    let files = new_files();
    let overlay = compose(&mut reader, &files).unwrap();
    let seed = render(&overlay, &base);
    std::fs::write(directory.join("seed.iso"), &seed).unwrap();
    let name = maker.name;
    assert_eq!(seed.len() as u64, overlay.size(), "{name}");
    assert!(overlay.stored() < 250_000, "{name}: {} bytes are held", overlay.stored());
    let views: &[_] = if maker.has_short_names { &["any"] } else { &["any", "norock"] };
    for names in views {
        check_files(directory, ("made.iso", "seed.iso"), names, &files, name);
    }
    check_directories(&seed, 0);
    assert_eq!(boot_images(directory, "made.iso"), boot_images(directory, "seed.iso"), "{name}");
    let place = Partitions::read(&mut reader).unwrap().find_place(&mut reader).unwrap();
    assert_eq!(place.volume.is_some(), maker.has_volume, "{name}");
    if let Some(volume) = place.volume {
        check_directories(&seed, volume);
        let mut grown = Base::new(Cursor::new(&seed[..])).unwrap();
        let grown = Partitions::read(&mut grown).unwrap().find_place(&mut grown).unwrap();
        for (part, image, block) in [("made-part", &base, place.block), ("seed-part", &seed, grown.block)] {
            let at = |block: u64| usize::try_from(block * BLOCK).unwrap();
            std::fs::write(directory.join(part), &image[at(volume)..at(block)]).unwrap();
        }
        check_files(directory, ("made-part", "seed-part"), "any", &files, name);
    }
    if maker.has_guid_table {
        let checked = run("sgdisk", &["-v", "seed.iso"], directory);
        assert!(checked.contains("No problems found"), "{name}: {checked}");
    }
}

fn check_files(directory: &Path, (made, seed): (&str, &str), names: &str, files: &[NewFile], maker: &str) {
    let mut want = list_files(directory, made, names);
    let got = list_files(directory, seed, names);
    assert!(want.len() > 40, "{maker}, {names}: {want:?}");
    let mut missing = vec![];
    for file in files {
        let path = match file.directory {
            Some(parent) => format!("/{parent}/{}", file.name),
            None => format!("/{}", file.name),
        };
        let path = fold_name(&path, names);
        want.remove(&path);
        match got.get(&path) {
            Some((attributes, content)) => {
                let (expected, permissions) = match &file.content {
                    Content::Text(bytes) => (&bytes[..], "-rw-r--r--"),
                    Content::Agent { .. } => (AGENT, "-rwxr-xr-x"),
                };
                assert!(content == expected, "{maker}, {names}: {path}");
                // Without Rock Ridge there are no modes.
                assert!(
                    names != "any" || attributes.starts_with(permissions),
                    "{maker}: {path}: {attributes}"
                );
            }
            None => missing.push(path),
        }
    }
    assert!(missing.is_empty(), "{maker}, {names}: {missing:?} of {:?}", got.keys());
    // The boot catalog names the place of the EFI partition.
    let differs = |path: &&String| path.as_str() != "/boot.cat" && got.get(*path) != want.get(*path);
    let differs: Vec<_> = want.keys().filter(differs).collect();
    assert!(differs.is_empty(), "{maker}, {names}: {differs:?}");
    let added = got.keys().filter(|path| !want.contains_key(*path)).count();
    assert!(added <= files.len() + 1, "{maker}, {names}: {:?}", got.keys());
}

#[test]
fn composed_image_is_what_xorriso_would_list() {
    if has_tools() {
        for maker in MAKERS {
            for has_config in [false, true] {
                check_made(maker, has_config);
            }
        }
    }
}

#[test]
fn stock_image_keeps_catalog_and_moves_partition() {
    if !has_tools() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    plant_tree(directory, false);
    run(MAKERS[0].program, MAKERS[0].arguments, directory);
    let base = std::fs::read(directory.join("made.iso")).unwrap();
    let overlay = compose(&mut Base::new(Cursor::new(&base[..])).unwrap(), &new_files()).unwrap();
    std::fs::write(directory.join("seed.iso"), render(&overlay, &base)).unwrap();
    let report = |image| {
        let text = run(
            "xorriso",
            &["-indev", image, "-report_el_torito", "plain", "-report_system_area", "plain"],
            directory,
        );
        let about =
            ["El Torito", "Partition offset", "GPT partition name", "GPT partition GUID", "GPT type GUID"];
        let lines = text.lines().filter(|line| about.iter().any(|about| line.starts_with(about)));
        // The place of the image, the last number, is the one that differs.
        let shown = |line: &str| {
            line.strip_prefix("El Torito boot img").map_or(line.to_owned(), |rest| {
                rest.rsplit_once(' ').map_or(String::new(), |(kept, _)| kept.to_owned())
            })
        };
        lines.map(shown).collect::<Vec<_>>()
    };
    assert_eq!(report("made.iso"), report("seed.iso"));
    assert!(report("seed.iso").len() > 8, "{:?}", report("seed.iso"));
}

#[test]
fn what_is_no_image_is_refused() {
    let file = new_files();
    let refused = |bytes: &[u8]| match compose(&mut Base::new(Cursor::new(bytes)).unwrap(), &file) {
        Err(ReadError::Layout(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&[]), LayoutError::NotIso);
    assert_eq!(refused(&vec![0; 100_000]), LayoutError::NotIso);
}
