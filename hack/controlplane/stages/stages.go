// Package stages carries KWOK's behaviour as data: what a fake kubelet does with its node and its pods.
package stages

import "embed"

// Files are the Stage manifests. Their selectors exclude each other: KWOK draws lots among stages that match together.
//
//go:embed *.yaml
var Files embed.FS
