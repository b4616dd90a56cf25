// A field's text while somebody types.
import { useEffect, useRef, useState } from "preact/hooks";

/** What is typed stays as it is until values come that know of it; answers that arrive meanwhile leave it alone. */
export const useTyped = (known, is, write) => {
  const [typed, setTyped] = useState();
  const isOpen = useRef(false);
  useEffect(() => { if (!isOpen.current) setTyped(undefined); }, [known]);
  const onInput = (event) => { isOpen.current = true; setTyped(event.target.value); };
  const onChange = (event) => {
    const text = event.target.value;
    isOpen.current = false;
    setTyped(text);
    write(text);
  };
  // Left as it was found.
  const onBlur = (event) => {
    if (!isOpen.current) return;
    if (event.target.value !== is) { onChange(event); return; }
    isOpen.current = false;
    setTyped(undefined);
  };
  return { text: typed ?? is, handlers: { onInput, onChange, onBlur } };
};
