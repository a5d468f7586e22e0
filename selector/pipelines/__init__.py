"""All pipelines that may be built on a cluster, and the best of them."""
