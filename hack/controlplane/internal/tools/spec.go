// Package tools finds, and where need be builds, the binaries of the control plane.
package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Spec says how one binary is built and how its version is asked.
type Spec struct {
	// Name is the file name of the binary.
	Name string
	// Module is the folder under tools/ whose go.mod pins it.
	Module string
	// Package is the main package to build.
	Package string
	// Requires is the module whose version is the tool's version.
	Requires string
	// Took is how long a build took on two cores with empty caches, for the progress line.
	Took string
	// VersionArgs make the binary print its version.
	VersionArgs []string
	// Accepts judges a version found elsewhere against the pinned one.
	Accepts func(found, pinned Version) bool
}

const kubernetes = "k8s.io/kubernetes"

// Names of the binaries.
const (
	Etcd      = "etcd"
	APIServer = "kube-apiserver"
	Manager   = "kube-controller-manager"
	Kubectl   = "kubectl"
	Kwok      = "kwok"
)

// Specs lists every binary in build order: the small ones that fail early first, the long one early enough to be worth waiting for.
func Specs() []Spec {
	return []Spec{
		{Etcd, "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", "40 s", []string{"--version"}, etcdAnswersProgress},
		{APIServer, "kubernetes", kubernetes + "/cmd/kube-apiserver", kubernetes, "4 to 7 min", []string{"--version"}, sameMinor},
		{Manager, "kubernetes", kubernetes + "/cmd/kube-controller-manager", kubernetes, "2 min", []string{"--version"}, sameMinor},
		{Kubectl, "kubernetes", kubernetes + "/cmd/kubectl", kubernetes, "30 s", []string{"version", "--client"}, withinOneMinor},
		{Kwok, "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok", "2 min", []string{"--version"}, stagesWithSteps},
	}
}

// ldflags strips the binary and, for Kubernetes, stamps the version: an unstamped server reports v0.0.0 and kubectl refuses it.
func (s Spec) ldflags(pinned Version) string {
	flags := "-s -w"
	if s.Requires != kubernetes {
		return flags
	}
	for _, stamp := range [][2]string{
		{"gitVersion", pinned.String()},
		{"gitMajor", strconv.Itoa(pinned.Major)},
		{"gitMinor", strconv.Itoa(pinned.Minor)},
		{"gitTreeState", "clean"},
	} {
		flags += fmt.Sprintf(" -X k8s.io/component-base/version.%s=%s", stamp[0], stamp[1])
	}
	return flags
}

// pinned reads the tool's version from the go.mod that pins it, so that a bump is an edit in one place.
func (s Spec) pinned(root string) (Version, error) {
	path := filepath.Join(root, "tools", s.Module, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return Version{}, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == s.Requires {
			return ParseVersion(fields[1])
		}
	}
	return Version{}, fmt.Errorf("%s does not require %s", path, s.Requires)
}

// Version is the numeric part of a release.
type Version struct{ Major, Minor, Patch int }

var versionPattern = regexp.MustCompile(`v?(\d+)\.(\d+)\.(\d+)`)

// ParseVersion takes the first x.y.z of a text, with or without a leading v.
func ParseVersion(text string) (Version, error) {
	match := versionPattern.FindStringSubmatch(text)
	if match == nil {
		return Version{}, fmt.Errorf("no version x.y.z in %q", strings.TrimSpace(text))
	}
	var numbers [3]int
	for i, digits := range match[1:] {
		number, err := strconv.Atoi(digits)
		if err != nil {
			return Version{}, fmt.Errorf("version %q: %w", match[0], err)
		}
		numbers[i] = number
	}
	return Version{numbers[0], numbers[1], numbers[2]}, nil
}

// String writes the version as tags do.
func (v Version) String() string { return fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor, v.Patch) }

func (v Version) atLeast(major, minor, patch int) bool {
	if v.Major != major {
		return v.Major > major
	}
	if v.Minor != minor {
		return v.Minor > minor
	}
	return v.Patch >= patch
}

// sameMinor keeps API server and controller manager in step wherever each comes from.
func sameMinor(found, pinned Version) bool {
	return found.Major == pinned.Major && found.Minor == pinned.Minor
}

// withinOneMinor is kubectl's supported skew.
func withinOneMinor(found, pinned Version) bool {
	return found.Major == pinned.Major && max(found.Minor-pinned.Minor, pinned.Minor-found.Minor) <= 1
}

// etcdAnswersProgress: older servers lack progress requests, and the API server then refuses streaming lists.
func etcdAnswersProgress(found, _ Version) bool {
	return found.Major == 3 && (found.atLeast(3, 5, 13))
}

// stagesWithSteps: our Stage files use spec.steps, which came with 0.8.
func stagesWithSteps(found, _ Version) bool { return found.atLeast(0, 8, 0) }
