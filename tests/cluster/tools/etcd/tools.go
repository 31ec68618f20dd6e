//go:build tools

// Package tools pins the commands that the cluster tests build.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
)
