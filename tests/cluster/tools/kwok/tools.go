//go:build tools

// Package tools pins the node and pod simulator that the cluster tests at scale build.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
