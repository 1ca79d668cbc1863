// Command model is a minimal program from which tests build an image.
package main

func main() {}
