// A control plane without containers, for demos and tests. The standard library is enough; the tools it runs have modules of their own under tools/.
module berth.dev/hack/controlplane

go 1.26.0
