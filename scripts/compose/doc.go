// Package compose tests deploy/compose. It holds tests only.
//
// They read the file with the program of the Compose specification's library, as docker
// compose config does, and check that settings, mounted files, ports, build targets and the
// configuration of NATS agree with the product. They do not start containers. The go command
// does not detect changes of the folder, because it is outside this module, so run the tests
// with -count=1.
package compose

//go:generate sh -c "go run ../../controlplane/cmd/gwctl nats-permissions >.new && mv .new ../../deploy/compose/nats-permissions.conf"
