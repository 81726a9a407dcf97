//! Missing: files that have to be there and are not.
//!
//! Why it exists: a copy that was cut short lacks whole files, and what is not there has no checksum that could be wrong.
//! Rules: F15 the manifest names hot and blob segments and the image of its checkpoint, the image names the piece files with rows and
//! index entries. Files that only the log's tail names are known to recovery alone (`opened`).
//! Latches and I/O: reads the manifest and the image afresh. A running database removes files as it goes, and says so in its manifest
//! first: what the manifest does not name any more behind the look for it is not missed.

use crate::directory::{Directory, Place};
use crate::manifest_file::Facts;
use crate::manifests::Manifests;
use pbxt::ImageNames;
use pbxt_base::Result;
use pbxt_segment::{SegmentClass, segment_name};
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    /// Files that the manifest lists.
    pub(crate) of_manifest: Vec<Place>,
    /// Files that the image of the checkpoint names.
    pub(crate) of_image: Vec<Place>,
    /// What the image names, and whose it is.
    pub(crate) names: ImageNames,
    /// Why nobody can say that.
    pub(crate) unknown: Option<pbxt::Error>,
}

impl Missing {
    /// Looks for all files that are named.
    pub(crate) fn find(directory: &Directory) -> Result<Self> {
        let Some(facts) = facts_now(directory)? else {
            return Ok(Self::default());
        };
        let mut missing = Self::default();
        match of_checkpoint(directory, &facts) {
            Ok(names) => missing.names = names,
            Err(error) => missing.unknown = Some(error),
        }
        let there = directory.names_now()?;
        let still = facts_now(directory)?.unwrap_or_default();
        let image = image_of(&still);
        let told = still.sealed.keys().chain(&still.begun).copied().chain(image);
        let told: BTreeSet<Place> = told.filter(|place| is_told(&facts, *place)).collect();
        let is_gone = |place: &Place| !there.contains(place);
        if still.checkpoint == facts.checkpoint {
            let named = missing.names.files.keys().copied();
            missing.of_image = named
                .filter(|place| is_gone(place) && !told.contains(place))
                .collect();
        } else {
            missing.unknown = None;
        }
        missing.of_manifest = told.into_iter().filter(is_gone).collect();
        Ok(missing)
    }
}

fn facts_now(directory: &Directory) -> Result<Option<Facts>> {
    Ok(Manifests::read(&*directory.disk)?.facts().cloned())
}

/// The image of the newest checkpoint.
pub(crate) fn image_of(facts: &Facts) -> Option<Place> {
    facts
        .checkpoint
        .map(|checkpoint| (SegmentClass::Meta, checkpoint.image))
}

fn is_told(facts: &Facts, place: Place) -> bool {
    facts.sealed.contains_key(&place) || facts.begun.contains(&place) || image_of(facts) == Some(place)
}

/// What the image names; nothing if there is no image to read, which is told by its own name.
fn of_checkpoint(directory: &Directory, facts: &Facts) -> pbxt::Result<ImageNames> {
    let Some(checkpoint) = facts.checkpoint else {
        return Ok(ImageNames::default());
    };
    let image = (SegmentClass::Meta, checkpoint.image);
    if !directory.disk.exists(&segment_name(image.0, image.1))? {
        return Ok(ImageNames::default());
    }
    let store = directory.store_of(image, facts)?;
    ImageNames::read(&store, checkpoint.image)
}
