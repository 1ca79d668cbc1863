// Tiny is a binary of this module, for images of the tests.
package main

func main() { println("elasticdl") }
