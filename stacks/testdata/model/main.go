// Command model is the source of an image.
package main

func main() {}
