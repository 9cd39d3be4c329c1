"""Extracts from a plan what the workers need."""

import math
import os

from recordmill.pipeline.build.context.build_context import PlannedBuild, RowSchema
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.dataset.manifest_parts import Pack
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.spec.features.category import NamedClasses
from recordmill.pipeline.spec.features.mask import OfImage
from recordmill.pipeline.versions.stores.base import Store
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.contract.kinds.base import Learned

SAMPLE_IMAGES = 10_000


def planned_build(
    plan: BuildPlan,
    folder: str,
    files: Files,
    *,
    inline: bool,
    threads: int,
    isolated: bool = False,
    workspace: Store | None = None,
    shards: Store | None = None,
) -> PlannedBuild:
    """Returns the workers' part of a plan; `folder` is by default the workspace, with the shards in `version`."""
    spec, workspace = plan.spec, workspace or LocalStore(os.path.abspath(folder))
    features, names = spec.resolved_features(), plan.given.inherited.names
    kept_rows = sum(span.rows.get("read", 0) for span in plan.spans.kept.values())
    train = (plan.rows + kept_rows) * spec.splits["train"] / sum(spec.splits.values())
    share = min(1.0, SAMPLE_IMAGES / train) if train else 1.0
    return PlannedBuild(
        name=spec.name,
        workspace=workspace,
        shards=shards or workspace.at("version"),
        scratch=os.path.join(os.path.abspath(folder), "scratch"),
        features=features,
        learned={name: Learned(is_label=name == spec.label, kept=names.get(name, ())) for name in features},
        analyzed=frozenset(name for name, feature in spec.features.items() if feature.analyzed),
        schema=_row_schema(plan),
        layout=plan.layout,
        readers=tuple(each.reader for each in plan.sources),
        spans=tuple(each.span for each in plan.sources),
        roots=plan.roots,
        files=files,
        inline=inline,
        pack_bytes=plan.pack_bytes,
        set_threads=threads,
        sample_share=2.0 ** math.floor(math.log2(share)) if spec.has_spans else share,  # spans' sums must add up
        models={name: each.owner(name) for name, each in features.items() if each.needs_model},
        packs=tuple(Pack(**dict(pack)) for pack in spec.packs),
        preprocessing=spec.preprocessing,
        user_code=plan.given.code,
        duplicates=spec.duplicates,
        forgotten=plan.given.inherited.forgotten,
        isolated=isolated,
        row_share=plan.row_share,
    )


def _row_schema(plan: BuildPlan) -> RowSchema:
    spec, label = plan.spec, plan.spec.features.get(plan.spec.label or "")
    several = {name: joined for name, feature in spec.features.items() if (joined := feature.joined_columns(name))}
    return RowSchema(
        columns=spec.columns(),
        features={name: f.first_column(name) for name, f in spec.features.items() if f.raw_column() is not None},
        key=spec.key_columns,
        label=spec.label,
        classes=_label_classes(plan),
        frozen_classes=plan.frozen is not None and getattr(label, "analyzed", False),
        fields={name: {field: column for field, (column, _) in joined.items()} for name, joined in several.items()},
        fills={name: feature.fill for name, feature in spec.features.items() if feature.optional},
        drawn={name: f.kind == "masks" for name, f in spec.features.items() if isinstance(f, OfImage) and f.draw},
        content_key=spec.content_key,
        split_by=spec.split_by,
        together=spec.together,
        source_splits=tuple(each.source.split for each in plan.sources),
        key_prefixes=tuple(each.key_prefix.encode() for each in plan.sources),
    )


def _label_classes(plan: BuildPlan) -> tuple[str, ...] | None:
    """Returns the label's classes, if the spec or a frozen analysis gives them."""
    label, name = plan.spec.features.get(plan.spec.label or ""), plan.spec.label
    if not isinstance(label, NamedClasses) or name is None:
        return None
    return plan.frozen.words(name) if plan.frozen is not None and label.analyzed else label.given_classes
