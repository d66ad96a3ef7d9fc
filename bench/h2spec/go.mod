// h2spec v2.6.0, which the tests of providers/sim build and run. It is a module
// of its own so that its dependencies are none of the project's.
module github.com/pushfleet/pushfleet/bench/h2spec

go 1.26.0

tool github.com/summerwind/h2spec/cmd/h2spec // v2.6.0 is commit 70ac22940108

require (
	github.com/fatih/color v0.0.0-20161025120501-bf82308e8c85 // indirect
	github.com/inconshreveable/mousetrap v1.0.0 // indirect
	github.com/mattn/go-colorable v0.1.0 // indirect
	github.com/mattn/go-isatty v0.0.4 // indirect
	github.com/spf13/cobra v0.0.0-20170118185516-dc208f4211e7 // indirect
	github.com/spf13/pflag v1.0.3 // indirect
	github.com/summerwind/h2spec v0.0.0-20200804131034-70ac22940108 // indirect
	golang.org/x/net v0.0.0-20161104230106-55a3084c9119 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
