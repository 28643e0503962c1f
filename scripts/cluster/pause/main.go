// Command pause holds the namespaces of a pod until it is stopped. It is the sandbox of the
// pods in the cluster of scripts/cluster.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	<-stopped
}
