"""Cut wing: cutting a DAG into stages, or placing its operators, with a proof."""
